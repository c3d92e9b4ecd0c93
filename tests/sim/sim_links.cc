// SPDX-License-Identifier: Apache-2.0
#include "sim/sim_links.h"

#include <algorithm>
#include <boost/asio/error.hpp>
#include <boost/asio/post.hpp>
#include <cstring>

namespace mc::sim {

class LinkWorld::End : public metadata::rpc::ByteStream,
                       public std::enable_shared_from_this<LinkWorld::End> {
 public:
  End(LinkWorld& world, const Place& at, HostId from)
      : at_(at.host), from_(from), world_(world), executor_(at.executor) {}
  ~End() override { tell_end(); }

  void start(Ready ready) override {
    boost::asio::post(executor_, [ready = std::move(ready)] { ready({}); });
  }
  void read_some(boost::asio::mutable_buffer buffer, Done done) override {
    buffer_ = buffer;
    reading_ = std::move(done);
  }
  void write(const std::vector<boost::asio::const_buffer>& buffers, Done done) override {
    std::string bytes;
    for (const auto& buffer : buffers) {
      bytes.append(static_cast<const char*>(buffer.data()), buffer.size());
    }
    const std::size_t count = bytes.size();
    const auto other = other_.lock();
    if (open_ && other != nullptr) other->arrive(std::move(bytes), false);
    boost::asio::post(executor_, [done = std::move(done), count, open = open_] {
      done(open ? boost::system::error_code() : boost::asio::error::operation_aborted,
           open ? count : 0);
    });
  }
  void close() override {
    if (!open_) return;
    open_ = false;
    tell_end();
    finish(boost::asio::error::operation_aborted, 0);
  }
  int socket() override { return -1; }
  std::string channel_binding() override { return {}; }

  void arrive(std::string bytes, bool end) {
    last_due_ns_ = std::max(last_due_ns_, world_.arrival_ns());
    inbox_.push_back({last_due_ns_, std::move(bytes), end});
  }
  // Both ends learn of the break even when cut off, as from a kernel.
  void break_now() { broken_ = true; }

  void deliver(std::uint64_t now_ns) {
    if (!open_ || reading_ == nullptr) return;
    if (broken_) {
      finish(boost::asio::error::connection_reset, 0);
      return;
    }
    if (inbox_.empty() || inbox_.front().due_ns > now_ns || !world_.passes_(from_, at_)) return;
    Chunk& chunk = inbox_.front();
    if (chunk.end) {
      finish(boost::asio::error::eof, 0);
      return;
    }
    const std::size_t count = std::min(buffer_.size(), chunk.bytes.size());
    std::memcpy(buffer_.data(), chunk.bytes.data(), count);
    chunk.bytes.erase(0, count);
    if (chunk.bytes.empty()) inbox_.pop_front();
    finish({}, count);
  }

  const HostId at_, from_;
  std::weak_ptr<End> other_;

 private:
  struct Chunk {
    std::uint64_t due_ns;
    std::string bytes;
    bool end;
  };
  void finish(boost::system::error_code error, std::size_t count) {
    if (reading_ == nullptr) return;
    boost::asio::post(
        executor_, [done = std::exchange(reading_, nullptr), error, count] { done(error, count); });
  }
  void tell_end() {
    if (const auto other = std::exchange(other_, {}).lock()) other->arrive({}, true);
  }

  LinkWorld& world_;
  const boost::asio::any_io_executor executor_;
  bool open_ = true;
  bool broken_ = false;
  std::deque<Chunk> inbox_;
  std::uint64_t last_due_ns_ = 0;
  boost::asio::mutable_buffer buffer_;
  Done reading_;
};

LinkWorld::Pair LinkWorld::make(const Place& near, const Place& far) {
  const auto here = std::make_shared<End>(*this, near, far.host);
  const auto there = std::make_shared<End>(*this, far, near.host);
  here->other_ = there;
  there->other_ = here;
  ends_.push_back(here);
  ends_.push_back(there);
  return {here, there};
}

void LinkWorld::deliver(std::uint64_t now_ns) {
  now_ns_ = now_ns;
  std::erase_if(ends_, [](const auto& end) { return end.expired(); });
  // Connections have no order among each other.
  std::vector<std::weak_ptr<End>> ends(ends_);
  for (std::size_t i = ends.size(); i > 1; --i) {
    std::swap(ends[i - 1], ends[order_.next() % i]);
  }
  for (const auto& weak : ends) {
    if (const auto end = weak.lock()) end->deliver(now_ns);
  }
}

void LinkWorld::cut(HostId host) {
  for (const auto& weak : ends_) {
    const auto end = weak.lock();
    if (end != nullptr && (end->at_ == host || end->from_ == host)) end->break_now();
  }
}

}  // namespace mc::sim
