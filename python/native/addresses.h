// SPDX-License-Identifier: Apache-2.0
//
// Plain addresses of this process: pieces to gather from or scatter to, and the ranges that an
//   engine registered.
// Threads: with the interpreter's lock. Owns: nothing; the caller owns the memory.
// Trusts: a registered range until the range is unregistered. With an AddressRanges argument,
//   memory_is_mapped() checks every other address; without the argument, nothing checks.
#pragma once

#include <map>

#include "core.h"

namespace mckv {

// True if [address, address + size) has no unmapped hole and the first and the last page grant the
// access. Takes about 1 us.
bool memory_is_mapped(std::uint64_t address, std::uint64_t size, bool writable);

std::uint64_t number_of(PyObject* object);  // raises TypeError, OverflowError

class AddressRanges {
 public:
  bool add(std::uint64_t address, std::uint64_t size);  // false: overlaps a range, or is not mapped
  bool remove(std::uint64_t address);                   // false: no range begins at address
  bool admits(const void* address, std::uint64_t size, bool writable) const;
  std::size_t count() const { return ranges_.size(); }

 private:
  std::map<std::uint64_t, std::uint64_t> ranges_;  // first address to size; without overlaps
};

// One address and size per object, or a list of both. mc_slice and mc_span differ only in
// constness.
template <typename Piece>
class Pieces {
 public:
  Pieces(std::size_t keys, nb::handle addresses, nb::handle sizes);
  const Piece* of(std::size_t i) const { return pieces_.data() + first_[i]; }
  std::size_t count_of(std::size_t i) const { return first_[i + 1] - first_[i]; }
  std::uint64_t bytes_of(std::size_t i) const {
    std::uint64_t sum = 0;
    for (std::size_t j = 0; j < count_of(i); ++j) sum += of(i)[j].size;
    return sum;
  }
  std::uint64_t bytes() const { return bytes_; }
  bool admitted(std::size_t i, const AddressRanges* ranges, bool writable) const {
    for (std::size_t j = 0; ranges != nullptr && j < count_of(i); ++j) {
      if (!ranges->admits(of(i)[j].data, of(i)[j].size, writable)) return false;
    }
    return true;
  }

 private:
  void add(PyObject* address, PyObject* size);

  std::vector<Piece> pieces_;
  std::vector<std::size_t> first_;
  std::uint64_t bytes_ = 0;
};

extern template class Pieces<mc_slice>;
extern template class Pieces<mc_span>;

// Copies the parts [offset, offset + size) out of spans, or into spans. False: a part ends beyond
// the spans; the function then copies nothing.
bool copy_out(const std::vector<mc_slice>& spans, const mc_span* pieces,
              const std::vector<std::uint64_t>& offsets);
bool copy_in(const std::vector<mc_span>& spans, const mc_slice* pieces,
             const std::vector<std::uint64_t>& offsets);
std::vector<std::uint64_t> offsets_of(nb::handle offsets, std::size_t count);

}  // namespace mckv
