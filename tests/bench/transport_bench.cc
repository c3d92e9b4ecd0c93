// SPDX-License-Identifier: Apache-2.0
//
// The TCP transport over loopback beside the limits of this machine, measured in the same run:
// iperf3's streams, and a bare ping-pong of the same sizes (for a batch of small reads: 2 KiB there
// and 128 KiB back). A process serves and another asks.
//
// With --tls: lanes with TLS and plain lanes in turns, and AES-128-GCM alone.
//
//   transport_bench [--json] [--seconds N] [--tls]
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <openssl/evp.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "bench/iperf3.h"
#include "conformance/transport/authority.h"
#include "conformance/transport/tcp_node.h"
#include "libmc/base/clock.h"
#include "libmc/base/memory_file.h"
#include "transport/flow/waiter.h"

namespace {

using namespace mc;             // NOLINT: a program's only file
using namespace mc::transport;  // NOLINT

constexpr NodeId kAsker = 1;
constexpr NodeId kServer = 2;
constexpr std::uint64_t kPoolBytes = 256u << 20;
constexpr std::uint64_t kSmallSetBytes = 4'096'000;  // 1,000 objects of 4 KiB
constexpr std::uint64_t kLongNs = 10'000'000'000;
constexpr std::uint64_t kSpinNs = 200'000;
// For all measurements here. bbr, the default of some systems, paces data by an earlier
// measurement of the bandwidth, so the results would depend on earlier runs.
constexpr const char* kCongestionControl = "reno";

double g_seconds = 1.0;

struct Row {
  std::string name;
  double ours = 0;
  double limit = 0;
  std::string unit;
  double wanted = 0;  // ratio; 0: the row is a limit of the machine
  bool at_least = true;
};
std::vector<Row> g_rows;

[[noreturn]] void die(const char* what) {
  std::perror(what);
  std::exit(1);
}

std::byte* memory(std::uint64_t bytes) {
  void* at = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (at == MAP_FAILED) die("mmap");
  std::memset(at, 3, bytes);
  return static_cast<std::byte*>(at);
}

// A child that calls work(write end) and ends with the parent.
template <typename Work>
int child(const Work& work, int* read_end) {
  int ends[2];
  if (::pipe(ends) != 0) die("pipe");
  const int pid = ::fork();
  if (pid < 0) die("fork");
  if (pid == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    ::close(ends[0]);
    work(ends[1]);
    std::_Exit(0);
  }
  ::close(ends[1]);
  *read_end = ends[0];
  return pid;
}

void end_child(int pid) {
  ::kill(pid, SIGKILL);
  ::waitpid(pid, nullptr, 0);
}

// ---- Limits -----------------------------------------------------------------------------------

// Spins and then sleeps for the same times as the transport.
void receive_all(int fd, char* to, std::size_t size) {
  Waiter waiter(kSpinNs);
  for (bool worked = true; size > 0;) {
    const ssize_t got = ::recv(fd, to, size, MSG_DONTWAIT);
    if (got == 0) std::_Exit(0);
    const std::uint64_t now = now_ns();
    waiter.wait(fd, now, worked || got > 0, now + kLongNs);
    worked = false;
    if (got < 0) continue;
    to += got;
    size -= static_cast<std::size_t>(got);
  }
}

// The limit of the sockets of the machine: request bytes there, size bytes back, from and to a
// working set as large as that of the transport. Both ends spin, as the transport does.
class PingPong {
 public:
  PingPong(std::size_t asked, std::size_t size) : asked_(asked), size_(size) {
    const Fd listener(::socket(AF_INET, SOCK_STREAM, 0));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof address;
    if (::bind(listener.get(), reinterpret_cast<sockaddr*>(&address), length) != 0 ||
        ::listen(listener.get(), 1) != 0 ||
        ::getsockname(listener.get(), reinterpret_cast<sockaddr*>(&address), &length) != 0) {
      die("ping-pong");
    }
    int unused = -1;
    pid_ = child([&](int) { answer(::accept(listener.get(), nullptr, nullptr)); }, &unused);
    ::close(unused);
    socket_.reset(::socket(AF_INET, SOCK_STREAM, 0));
    prepare(socket_.get());
    if (::connect(socket_.get(), reinterpret_cast<sockaddr*>(&address), length) != 0) {
      die("connect");
    }
  }
  ~PingPong() { end_child(pid_); }

  // Average nanoseconds of a round.
  double run(int rounds) {
    const std::uint64_t start_ns = now_ns();
    for (int i = 0; i < rounds; ++i) {
      static_cast<void>(::send(socket_.get(), request_.data(), asked_, MSG_NOSIGNAL));
      if (at_ + size_ > set_.size()) at_ = 0;
      receive_all(socket_.get(), set_.data() + at_, size_);
      at_ += size_;
    }
    return static_cast<double>(now_ns() - start_ns) / rounds;
  }

 private:
  static void prepare(int fd) {
    const int one = 1;
    ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    ::setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, kCongestionControl,
                 std::strlen(kCongestionControl));
  }
  [[noreturn]] void answer(int fd) {
    prepare(fd);
    for (;;) {
      receive_all(fd, request_.data(), asked_);
      if (at_ + size_ > set_.size()) at_ = 0;
      static_cast<void>(::send(fd, set_.data() + at_, size_, MSG_NOSIGNAL));
      at_ += size_;
    }
  }

  const std::size_t asked_;
  const std::size_t size_;
  std::size_t at_ = 0;
  std::vector<char> request_ = std::vector<char>(4096);
  std::vector<char> set_ = std::vector<char>(kSmallSetBytes);
  int pid_ = -1;
  Fd socket_;
};

// ---- Ours -------------------------------------------------------------------------------------

tcp::TcpOptions options(NodeId node) {
  tcp::TcpOptions result;
  result.node = node;
  result.incarnation = 1;
  result.congestion_control = kCongestionControl;
  return result;
}

struct Told {
  std::uint16_t port;
  std::byte text[24];
};

class Bench {
 public:
  explicit Bench(std::uint32_t lanes, const tls::Identity* tls = nullptr) {
    int told_fd = -1;
    server_ = child([tls](int out) { serve(out, tls); }, &told_fd);
    Told told{};
    if (::read(told_fd, &told, sizeof told) != sizeof told) die("the server did not start");
    ::close(told_fd);
    book_[kServer] = told.port;
    node_ = std::make_unique<testing::TcpNode>(book_, options(kAsker), 0, tls);
    peer_ = node_->transport().connect({kServer, lanes}).value();
    region_ = node_->transport().import_region(peer_, told.text).value();
    to_ = memory(kPoolBytes);
    while (node_->links() < lanes + 1) step();
  }
  ~Bench() {
    node_.reset();
    end_child(server_);
    ::munmap(to_, kPoolBytes);
  }

  // Average nanoseconds of a call. A call reads `count` objects and waits for all. The
  // objects lie side by side in a working set of this size.
  double get(std::uint64_t size, std::size_t count, std::uint64_t set_bytes = kPoolBytes) {
    // The first tenth is warm-up for lanes and measurements.
    double total_ns = 0;
    for (const double seconds : {g_seconds / 10, g_seconds}) {
      int rounds = 0;
      total_ns = 0;
      for (; total_ns < seconds * 1e9; ++rounds) total_ns += get_some(size, count, set_bytes, 1);
      total_ns /= rounds;
    }
    return total_ns;
  }
  // The same over this number of rounds.
  double get_some(std::uint64_t size, std::size_t count, std::uint64_t set_bytes, int rounds) {
    pieces_.resize(count);
    batch_.resize(count);
    const std::uint64_t start_ns = now_ns();
    for (int round = 0; round < rounds; ++round) {
      const std::uint64_t now = now_ns();
      for (std::size_t i = 0; i < count; ++i) {
        if (at_ + size > set_bytes) at_ = 0;
        pieces_[i] = {to_ + at_, size, kNoRegion};
        batch_[i] = {};
        batch_[i].peer = peer_;
        batch_[i].region = region_;
        batch_[i].offset_bytes = at_;
        batch_[i].deadline_ns = now + kLongNs;
        batch_[i].pieces = {&pieces_[i], 1};
        at_ += size;
      }
      if (node_->transport().submit(batch_, now) != count) die("submit");
      for (std::size_t done = 0; done < count;) done += step();
    }
    return static_cast<double>(now_ns() - start_ns) / rounds;
  }
  const Counters& counters() const { return node_->transport().counters(); }

 private:
  static void serve(int out, const tls::Identity* tls) {
    testing::PortBook book;
    testing::TcpNode node(book, options(kServer), 0, tls);
    auto pool = MemoryFile::create("bench", kPoolBytes).value();
    if (!pool.reserve(0, kPoolBytes).ok()) die("reserve");
    auto mapping = Mapping::map(pool.fd(), kPoolBytes, Mapping::Access::kReadWrite).value();
    std::memset(mapping.data(), 9, kPoolBytes);
    RegionSpec spec;
    spec.data = mapping.data();
    spec.size_bytes = kPoolBytes;
    spec.rights = kRemoteRead;
    const auto text =
        node.transport().describe(node.transport().register_region(spec).value()).value();
    Told told{book[kServer], {}};
    std::memcpy(told.text, text.data(), sizeof told.text);
    if (::write(out, &told, sizeof told) != sizeof told) die("write");
    std::vector<Event> events;
    Waiter waiter(kSpinNs);
    std::uint64_t shook_ns = 0;
    for (;;) {
      const std::uint64_t now = now_ns();
      if (now > shook_ns + 1'000'000) {
        node.step(now);
        shook_ns = now;
      }
      const std::uint64_t calls = node.transport().counters().send_calls;
      node.transport().poll(now, events);
      events.clear();
      waiter.wait(node.transport().wait_fd(), now, node.transport().counters().send_calls != calls,
                  std::min(node.transport().next_poll_ns(), now + 5'000'000));
    }
  }

  std::size_t step() {
    const std::uint64_t now = now_ns();
    if (now > shook_ns_ + 1'000'000) {
      node_->step(now);
      shook_ns_ = now;
    }
    events_.clear();
    const std::uint64_t calls = node_->transport().counters().receive_calls;
    node_->transport().poll(now, events_);
    std::size_t done = 0;
    for (const Event& event : events_) {
      if (event.kind != Event::Kind::kCompleted) continue;
      if (event.outcome != Outcome::kDone) {
        std::fprintf(stderr, "a get ended as %s\n",
                     std::string(outcome_name(event.outcome)).c_str());
        std::exit(1);
      }
      ++done;
    }
    waiter_.wait(node_->transport().wait_fd(), now,
                 node_->transport().counters().receive_calls != calls,
                 std::min(node_->transport().next_poll_ns(), now + 5'000'000));
    return done;
  }

  int server_ = -1;
  testing::PortBook book_;
  std::unique_ptr<testing::TcpNode> node_;
  PeerId peer_ = kNoPeer;
  RemoteRegionId region_ = 0;
  std::byte* to_ = nullptr;
  std::vector<Event> events_;
  std::vector<Piece> pieces_;
  std::vector<Operation> batch_;
  std::uint64_t at_ = 0;
  std::uint64_t shook_ns_ = 0;
  Waiter waiter_{kSpinNs};
};

double gigabytes_per_s(std::uint64_t size, double ns) { return static_cast<double>(size) / ns; }

// In turns of a few milliseconds; only the best tenth counts. Other work on the machine, or a
// slower clock of the processor, then affects no result.
void measure_small(Bench& bench) {
  constexpr std::size_t kBatch = 32;
  constexpr int kRounds = 50;
  PingPong bare_one(64, 4096);
  PingPong bare_batch(kBatch * 64, kBatch * 4096);
  enum { kBare, kBareBatch, kOurs, kOursBatch, kKinds };
  std::vector<double> took[kKinds];
  for (int turn = 0; turn < std::max(20, static_cast<int>(g_seconds * 200)); ++turn) {
    took[kBare].push_back(bare_one.run(kRounds));
    took[kBareBatch].push_back(bare_batch.run(kRounds));
    took[kOurs].push_back(bench.get_some(4096, 1, kSmallSetBytes, kRounds));
    took[kOursBatch].push_back(bench.get_some(4096, kBatch, kSmallSetBytes, kRounds));
  }
  double us[kKinds];
  for (int kind = 0; kind < kKinds; ++kind) {
    std::ranges::sort(took[kind]);
    us[kind] = took[kind][took[kind].size() / 10] / 1e3;
  }
  g_rows.push_back({"get 4 KiB / bare ping-pong", us[kOurs], us[kBare], "us", 2.0, false});
  g_rows.push_back({"32 x 4 KiB / get 4 KiB", us[kOursBatch], us[kOurs], "us", 3.0, false});
  g_rows.push_back({"bare: 128 KiB for 2 KiB / 4 KiB", us[kBareBatch], us[kBare], "us", 0, false});
  g_rows.push_back(
      {"32 x 4 KiB / bare 128 KiB for 2 KiB", us[kOursBatch], us[kBareBatch], "us", 2.0, false});
}

void measure() {
  const double one_stream = bench::iperf3_gb_per_s(1, g_seconds, kCongestionControl);
  {
    Bench bench(1);
    g_rows.push_back({"get 1 MiB, 1 lane / iperf3",
                      gigabytes_per_s(1u << 20, bench.get(1u << 20, 1)), one_stream, "GB/s", 0.85,
                      true});
    g_rows.push_back({"get 64 MiB, 1 lane / iperf3",
                      gigabytes_per_s(64u << 20, bench.get(64u << 20, 1)), one_stream, "GB/s", 0.85,
                      true});
    g_rows.push_back({"8 x 1 MiB, 1 lane / iperf3",
                      gigabytes_per_s(8u << 20, bench.get(1u << 20, 8)), one_stream, "GB/s", 0.85,
                      true});
    measure_small(bench);
  }
  const double four_streams = bench::iperf3_gb_per_s(4, g_seconds, kCongestionControl);
  Bench bench(4);
  g_rows.push_back({"get 64 MiB, 4 lanes / iperf3 -P 4",
                    gigabytes_per_s(64u << 20, bench.get(64u << 20, 1)), four_streams, "GB/s", 0.90,
                    true});
  g_rows.push_back({"get 1 MiB, 4 lanes / iperf3 -P 4",
                    gigabytes_per_s(1u << 20, bench.get(1u << 20, 1)), four_streams, "GB/s", 0.90,
                    true});
}

// Gigabytes per second of records of 16 KiB, by a single core.
double cipher_gb_per_s() {
  const std::unique_ptr<EVP_CIPHER_CTX, void (*)(EVP_CIPHER_CTX*)> cipher(
      ::EVP_CIPHER_CTX_new(), [](EVP_CIPHER_CTX* context) { ::EVP_CIPHER_CTX_free(context); });
  std::vector<unsigned char> from(16 * 1024), to(16 * 1024 + 16), key(16), nonce(12);
  ::EVP_EncryptInit_ex(cipher.get(), ::EVP_aes_128_gcm(), nullptr, key.data(), nonce.data());
  const std::uint64_t start_ns = now_ns();
  std::uint64_t bytes = 0;
  for (; now_ns() < start_ns + static_cast<std::uint64_t>(g_seconds * 1e9); bytes += from.size()) {
    int size = 0;
    ++nonce[bytes / from.size() % nonce.size()];
    ::EVP_EncryptInit_ex(cipher.get(), nullptr, nullptr, nullptr, nonce.data());
    ::EVP_EncryptUpdate(cipher.get(), to.data(), &size, from.data(), static_cast<int>(from.size()));
    ::EVP_EncryptFinal_ex(cipher.get(), to.data(), &size);
    ::EVP_CIPHER_CTX_ctrl(cipher.get(), EVP_CTRL_GCM_GET_TAG, 16, to.data());
  }
  return gigabytes_per_s(bytes, static_cast<double>(now_ns() - start_ns));
}

void measure_tls() {
  constexpr int kTurns = 5;
  struct Kind {
    const char* name;
    std::uint32_t lanes;
    std::uint64_t size;
    std::size_t count;
    std::uint64_t set_bytes;
  };
  for (const Kind& kind : {Kind{"get 4 KiB", 1, 4096, 1, kSmallSetBytes},
                           Kind{"32 x 4 KiB", 1, 4096, 32, kSmallSetBytes},
                           Kind{"get 1 MiB, 1 lane", 1, 1u << 20, 1, kPoolBytes},
                           Kind{"get 64 MiB, 1 lane", 1, 64u << 20, 1, kPoolBytes},
                           Kind{"get 64 MiB, 4 lanes", 4, 64u << 20, 1, kPoolBytes}}) {
    Bench plain(kind.lanes);
    Bench tls(kind.lanes, &conformance::loopback_identity());
    std::vector<double> plain_ns, tls_ns;
    for (int turn = 0; turn < kTurns; ++turn) {
      plain_ns.push_back(plain.get(kind.size, kind.count, kind.set_bytes));
      tls_ns.push_back(tls.get(kind.size, kind.count, kind.set_bytes));
    }
    if (const std::uint64_t failed = tls.counters().lanes_failed; failed > 0) {
      std::fprintf(stderr, "%llu lanes with TLS were silent for too long\n",
                   static_cast<unsigned long long>(failed));
    }
    std::ranges::sort(plain_ns);
    std::ranges::sort(tls_ns);
    const double ours = tls_ns[kTurns / 2], limit = plain_ns[kTurns / 2];
    const std::string name = std::string(kind.name) + ", TLS / plain";
    if (kind.size * kind.count < (1u << 20)) {
      g_rows.push_back({name, ours / 1e3, limit / 1e3, "us", 0, false});
      continue;
    }
    g_rows.push_back({name, gigabytes_per_s(kind.size, ours), gigabytes_per_s(kind.size, limit),
                      "GB/s", 0, true});
  }
  const double stream = g_rows.back().ours;
  g_rows.push_back(
      {"the last / AES-128-GCM, one core", stream, cipher_gb_per_s(), "GB/s", 0, true});
}

void print(bool json) {
  if (!json)
    std::printf("%-36s %10s %10s %5s %7s %8s\n", "what", "ours", "limit", "", "ratio", "wanted");
  for (const Row& row : g_rows) {
    const double ratio = row.limit > 0 ? row.ours / row.limit : 0;
    if (json) {
      std::printf(
          "{\"name\": \"%s\", \"ours\": %.4g, \"limit\": %.4g, \"unit\": \"%s\", "
          "\"ratio\": %.3f, \"wanted\": \"%s %.2f\"}\n",
          row.name.c_str(), row.ours, row.limit, row.unit.c_str(), ratio,
          row.at_least ? ">=" : "<=", row.wanted);
    } else {
      std::printf("%-36s %10.2f %10.2f %5s %7.2f %5s%.2f\n", row.name.c_str(), row.ours, row.limit,
                  row.unit.c_str(), ratio, row.at_least ? ">=" : "<=", row.wanted);
    }
  }
}

}  // namespace

int main(int count, char** arguments) {
  bool json = false;
  bool with_tls = false;
  for (int i = 1; i < count; ++i) {
    const std::string argument = arguments[i];
    if (argument == "--json") {
      json = true;
    } else if (argument == "--seconds" && i + 1 < count) {
      g_seconds = std::max(0.1, std::strtod(arguments[++i], nullptr));
    } else if (argument == "--tls") {
      with_tls = true;
    } else {
      std::fprintf(stderr, "usage: transport_bench [--json] [--seconds N] [--tls]\n");
      return 2;
    }
  }
  if (with_tls) {
    measure_tls();
  } else {
    measure();
  }
  print(json);
  return 0;
}
