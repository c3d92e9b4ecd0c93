// SPDX-License-Identifier: Apache-2.0
#include "agent/pool/policy/reuse.h"

#include <algorithm>

namespace mc::agent {
namespace {

// A stretch of bands that is best waited through as a whole, seen from an object that enters
// the stretch.
struct Stretch {
  float uses = 0;    // expected by its end
  float epochs = 0;  // expected time until the use or the end
  float left = 1;    // chance to leave the stretch unused

  [[nodiscard]] float worth() const { return uses / epochs; }
  void append(const Stretch& next) {
    uses += left * next.uses;
    epochs += left * next.epochs;
    left *= next.left;
  }
};

}  // namespace

void Reuse::halve() {
  for (auto& cells : cells_) {
    for (Cell& cell : cells) cell = {cell.reached / 2, cell.reused / 2};
  }
}

void Reuse::shift_octave() {
  for (auto& cells : cells_) {
    std::copy(cells.begin() + 4, cells.end(), cells.begin() + 2);
    cells[Ages::kBands - 1] = cells[Ages::kBands - 2] = {};
  }
}

// A band without data inherits the chance of the previous band. Bands are equal parts of an octave,
// so the chance per epoch falls as 1 over the age.
Reuse::Chances Reuse::chances_of_all() const {
  Chances chances{};
  float before = 0.5F;
  for (std::size_t band = 1; band < Ages::kBands; ++band) {
    Cell sum;
    for (const auto& cells : cells_) {
      sum.reached += cells[band].reached;
      sum.reused += cells[band].reused;
    }
    chances[band] = before = (sum.reused + before) / (std::max(sum.reached, sum.reused) + 1);
  }
  return chances;
}

// From the oldest band back: a band joins the stretch after it as long as that stretch is worth
// more. A lull therefore counts together with the uses that follow.
void Reuse::compute_worth(Worth& worth) const {
  const Chances all = chances_of_all();
  for (std::size_t klass = 0; klass < kClasses; ++klass) {
    std::array<Stretch, Ages::kBands> ahead;
    std::size_t ahead_count = 0;
    for (std::size_t band = Ages::kBands; band-- > 0;) {
      const Cell& cell = cells_[klass][band];
      const float chance = (cell.reused + all[band]) / (std::max(cell.reached, cell.reused) + 1);
      const auto width = static_cast<float>(Ages::band_start(band + 1) - Ages::band_start(band));
      Stretch stretch{chance, width * (1 - chance / 2), 1 - chance};
      while (ahead_count > 0 && ahead[ahead_count - 1].worth() > stretch.worth()) {
        stretch.append(ahead[--ahead_count]);
      }
      ahead[ahead_count++] = stretch;
      worth[klass][band] = stretch.worth();
    }
  }
}

}  // namespace mc::agent
