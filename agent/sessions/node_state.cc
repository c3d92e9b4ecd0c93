// SPDX-License-Identifier: Apache-2.0
#include "agent/sessions/node_state.h"

#include <sys/random.h>

#include "libmc/base/hash.h"
#include "shm/layout.h"

namespace mc::agent {

struct NodeState::Page {
  shm::FileHeader header;
  std::uint64_t node_id;
  std::uint64_t incarnation;
  std::uint64_t next_session_id;
  unsigned char secret[192];  // XXH3 requires at least 136 bytes
};

NodeState::Page& NodeState::page() const { return *reinterpret_cast<Page*>(mapping_.data()); }

Result<NodeState> NodeState::open(MemoryFile file, const std::function<Known()>& known) {
  NodeState state;
  const bool kept = file && file.size_bytes() == shm::kPageBytes;
  if (kept) {
    state.file_ = std::move(file);
  } else {
    auto fresh = MemoryFile::create("mc-node", shm::kPageBytes);
    if (!fresh) return fail(fresh.error());
    state.file_ = std::move(*fresh);
  }
  if (Status status = state.file_.reserve(0, shm::kPageBytes); !status.ok()) return fail(status);
  auto mapping = Mapping::map(state.file_.fd(), shm::kPageBytes, Mapping::Access::kReadWrite);
  if (!mapping) return fail(mapping.error());
  state.mapping_ = std::move(*mapping);
  Page& page = state.page();
  if (!kept || !shm::check_header(page.header, shm::FileKind::kNode, shm::kPageBytes)) {
    if (::getrandom(&page.node_id, sizeof page.node_id, 0) < 0 ||
        ::getrandom(page.secret, sizeof page.secret, 0) < 0) {
      return fail(MC_INTERNAL, "getrandom() failed; the kernel gives no random numbers");
    }
    page.incarnation = 0;
    if (const Known earlier = known(); earlier.node_id != 0) {
      page.node_id = earlier.node_id;
      page.incarnation = earlier.incarnation;
    }
    page.next_session_id = 1;
    page.header = shm::make_header(shm::FileKind::kNode, shm::kPageBytes, page.node_id, 0);
  }
  ++page.incarnation;
  return state;
}

std::uint64_t NodeState::node_id() const { return page().node_id; }
std::uint64_t NodeState::incarnation() const { return page().incarnation; }
std::uint64_t NodeState::take_session_id() { return page().next_session_id++; }

std::uint64_t NodeState::session_secret(std::uint64_t session_id) const {
  return XXH3_64bits_withSecret(&session_id, sizeof session_id, page().secret,
                                sizeof page().secret);
}

}  // namespace mc::agent
