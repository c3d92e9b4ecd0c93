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

// The stream with this number, as torch.cuda.Stream.cuda_stream; null for None.
mc_stream stream_of(nb::handle stream);
// Copies pieces[i] from or to offsets[i] of an object with so many bytes. Item: mc_read_item or
// mc_write_item, which make(offset, piece) makes. False: a part ends beyond the object, and nothing is
// copied.
template <typename Item, typename Piece, typename Make>
bool copy_parts(const Core& core, const Pieces<Piece>& pieces, std::uint64_t length,
                const std::vector<std::uint64_t>& offsets, mc_stream stream, Make make,
                mc_status (*copy)(mc_client*, const Item*, std::size_t, mc_stream)) {
  std::vector<Item> items;
  for (std::size_t i = 0; i < offsets.size(); ++i) {
    const Piece* const piece = pieces.of(0) + i;
    if (offsets[i] > length || piece->size > length - offsets[i]) return false;
    items.push_back(make(offsets[i], piece));
  }
  mc_status status = MC_OK;
  in_batches(items.size(), [&](std::size_t first, std::size_t count) {
    if (status != MC_OK) return;
    status = run(stream == nullptr && pieces.bytes() <= kCopyWithLockBytes,
                 [&] { return copy(core.client(), items.data() + first, count, stream); });
  });
  check(status);
  return true;
}
// mc_get_batch_on_stream(), in batches: for each item the bytes copied, or minus its Status. Raises the
// failure of an earlier copy in the order of a stream.
nb::list get_items(const Core& core, std::vector<mc_get_item>& items, std::uint64_t bytes,
                   nb::handle stream);
std::vector<std::uint64_t> offsets_of(nb::handle offsets, std::size_t count);

}  // namespace mckv
