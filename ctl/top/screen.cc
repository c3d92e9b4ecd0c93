// SPDX-License-Identifier: Apache-2.0
#include "ctl/top/screen.h"

#include <langinfo.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <clocale>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <cwchar>
#include <utility>

// The library's macros have names such as clear and move.
#define NCURSES_NOMACROS 1
#include <curses.h>
#include <term.h>

namespace mc::ctl::top {

struct Screen::Terminal {
  SCREEN* screen = nullptr;
  bool colours = false;
  bool utf8 = false;
};

namespace {

constexpr int kEscape = 27;
constexpr int kDelete = 127;
// After an Escape alone, the wait for the rest of a function key.
constexpr int kEscapeDelayMs = 25;

enum ColourPair : short { kGoodPair = 1, kBadPair = 2 };

std::string terminal_type() {
  const char* const type = std::getenv("TERM");
  return type == nullptr ? "" : type;
}

// True if the terminal can show a full screen.
bool can_move_cursor() {
  int error = 0;
  if (::setupterm(nullptr, STDOUT_FILENO, &error) != OK) return false;
  const char* const move = ::tigetstr("cup");
  const bool can = move != nullptr && move != reinterpret_cast<char*>(-1);
  ::del_curterm(::set_curterm(nullptr));
  return can;
}

// The text in the characters of the locale, each one column wide.
std::wstring wide_text(const std::string& text, bool utf8) {
  std::wstring out;
  std::mbstate_t state{};
  const char* at = text.data();
  const char* const end = at + text.size();
  while (at != end) {
    wchar_t letter = L'?';
    const auto left = static_cast<std::size_t>(end - at);
    std::size_t bytes = utf8 ? std::mbrtowc(&letter, at, left, &state) : 1;
    if (bytes == 0 || bytes > left) {  // a zero byte, or not a character
      state = {};
      bytes = 1;
      letter = L'?';
    } else if (!utf8) {
      // The first byte of a character stands for the character.
      const auto byte = static_cast<unsigned char>(*at);
      if ((byte & 0xc0) == 0x80) {
        ++at;
        continue;
      }
      letter = byte < 0x80 ? static_cast<wchar_t>(byte) : L'?';
    }
    out += ::wcwidth(letter) == 1 ? letter : L'?';
    at += bytes;
  }
  return out;
}

attr_t attributes_of(Style style) {
  switch (style) {
    case Style::kStrong:
    case Style::kBad:
      return A_BOLD;
    case Style::kFaint:
      return A_DIM;
    case Style::kReversed:
      return A_REVERSE;
    case Style::kPlain:
    case Style::kGood:
      return A_NORMAL;
  }
  return A_NORMAL;
}

short pair_of(Style style) {
  return style == Style::kGood ? kGoodPair : style == Style::kBad ? kBadPair : 0;
}

bool begin_colours() {
  const char* const refused = std::getenv("NO_COLOR");
  if ((refused != nullptr && refused[0] != '\0') || !::has_colors()) return false;
  ::start_color();
  ::use_default_colors();
  ::init_pair(kGoodPair, COLOR_GREEN, -1);
  ::init_pair(kBadPair, COLOR_RED, -1);
  return true;
}

Key key_of(int code) {
  switch (code) {
    case KEY_UP:
      return Key::kUp;
    case KEY_DOWN:
      return Key::kDown;
    case KEY_LEFT:
      return Key::kLeft;
    case KEY_RIGHT:
      return Key::kRight;
    case KEY_PPAGE:
      return Key::kPageUp;
    case KEY_NPAGE:
      return Key::kPageDown;
    case KEY_HOME:
      return Key::kHome;
    case KEY_END:
      return Key::kEnd;
    case '\t':
      return Key::kTab;
    case '\r':
    case '\n':
    case KEY_ENTER:
      return Key::kEnter;
    case kEscape:
      return Key::kEscape;
    case '\b':
    case kDelete:
    case KEY_BACKSPACE:
      return Key::kBackspace;
    default:
      return code >= ' ' && code <= 0xff ? Key::kText : Key::kNone;
  }
}

}  // namespace

Screen::Screen(std::unique_ptr<Terminal> terminal) : terminal_(std::move(terminal)) {}

Result<std::unique_ptr<Screen>> Screen::open() {
  const std::string cause = "the terminal type '" + terminal_type() +
                            "' (TERM) cannot show a full screen; set TERM to the type of the "
                            "terminal, for example xterm-256color";
  if (!can_move_cursor()) return fail(MC_UNSUPPORTED, cause);
  auto terminal = std::make_unique<Terminal>();
  std::setlocale(LC_CTYPE, "");
  terminal->utf8 = std::strcmp(::nl_langinfo(CODESET), "UTF-8") == 0;
  terminal->screen = ::newterm(nullptr, stdout, stdin);
  if (terminal->screen == nullptr) return fail(MC_UNSUPPORTED, cause);
  ::set_escdelay(kEscapeDelayMs);
  ::cbreak();
  ::noecho();
  ::keypad(stdscr, TRUE);
  ::nodelay(stdscr, TRUE);
  ::curs_set(0);
  terminal->colours = begin_colours();
  return std::unique_ptr<Screen>(new Screen(std::move(terminal)));
}

Screen::~Screen() {
  ::endwin();
  ::delscreen(terminal_->screen);
}

std::size_t Screen::width() const { return static_cast<std::size_t>(getmaxx(stdscr)); }

std::size_t Screen::height() const { return static_cast<std::size_t>(getmaxy(stdscr)); }

void Screen::resize() {
  winsize size{};
  if (::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_row == 0 || size.ws_col == 0)
    return;
  ::resizeterm(size.ws_row, size.ws_col);
}

void Screen::draw(const std::vector<ScreenLine>& drawn) {
  ::werase(stdscr);
  for (std::size_t y = 0; y < drawn.size(); ++y) {
    ::wmove(stdscr, static_cast<int>(y), 0);
    for (const Span& span : drawn[y]) {
      const std::wstring text = wide_text(span.text, terminal_->utf8);
      const short pair = terminal_->colours ? pair_of(span.style) : short{0};
      ::wattr_set(stdscr, attributes_of(span.style), pair, nullptr);
      ::waddnwstr(stdscr, text.data(), static_cast<int>(text.size()));
    }
  }
  ::wattr_set(stdscr, A_NORMAL, 0, nullptr);
  ::wrefresh(stdscr);
}

void Screen::redraw() {
  // The next refresh sets the modes again and draws all cells.
  ::endwin();
  ::clearok(stdscr, TRUE);
}

KeyPress Screen::next_key() {
  while (true) {
    const int code = ::wgetch(stdscr);
    if (code == ERR) return {};
    const Key key = key_of(code);
    if (key == Key::kText) return {key, static_cast<char>(code)};
    if (key != Key::kNone) return {key};
  }
}

}  // namespace mc::ctl::top
