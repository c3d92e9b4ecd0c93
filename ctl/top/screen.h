// SPDX-License-Identifier: Apache-2.0
//
// A terminal in full-screen mode: lines out, keys in. The only user of ncurses.
// Threads: the main thread. A process has a single Screen at a time.
// Owns: the mode of the terminal, from open() to the destructor.
// Trusts: nothing; a character that is not one column wide prints as '?', so that no line wraps.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "ctl/top/view.h"
#include "mc/status.h"

namespace mc::ctl::top {

class Screen {
 public:
  // Takes the terminal of standard input and output. MC_UNSUPPORTED: the type of the terminal
  // (TERM) is unknown, or cannot move the cursor.
  static Result<std::unique_ptr<Screen>> open();
  // Restores the terminal.
  ~Screen();
  Screen(const Screen&) = delete;
  Screen& operator=(const Screen&) = delete;

  std::size_t width() const;
  std::size_t height() const;
  // Asks the terminal for its size, after SIGWINCH.
  void resize();
  void draw(const std::vector<ScreenLine>& drawn);
  // Lets the next draw() set the modes of the terminal and draw all cells. After SIGCONT: the shell
  // had the terminal meanwhile.
  void redraw();
  // The next key that was pressed; kNone: none waits.
  KeyPress next_key();

 private:
  struct Terminal;
  explicit Screen(std::unique_ptr<Terminal> terminal);

  std::unique_ptr<Terminal> terminal_;
};

}  // namespace mc::ctl::top
