// SPDX-License-Identifier: Apache-2.0
//
// State that survives the end of agent and keeper, and the handling of damaged memory.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>

#include <atomic>
#include <bit>
#include <filesystem>
#include <fstream>
#include <random>
#include <thread>

#include "crash/host.h"
#include "crash/values.h"
#include "defect.h"
#include "keepers.h"
#include "kept_sessions.h"
#include "libmc/base/clock.h"
#include "mc/mc.h"
#include "pool_memory.h"
#include "process_stop.h"
#include "shm/layout.h"

namespace mc::crash {

namespace {

constexpr std::size_t kValueBytes = 4096;

double seconds_since(std::uint64_t start_ns) {
  return static_cast<double>(now_ns() - start_ns) / 1e9;
}

class Client {
 public:
  explicit Client(const Host& host) : client_(host) {
    EXPECT_NE(handle(), nullptr) << mc_last_error();
  }

  mc_status put(const std::string& key, std::uint64_t version) {
    const std::vector<std::byte> value = make_value(key, version, kValueBytes);
    mc_put_options options = MC_PUT_OPTIONS_INIT;
    options.upsert = 1;
    return mc_put(handle(), {key.data(), key.size()}, {value.data(), value.size()}, &options);
  }
  // The version; 0 for none. Bytes of no put are a failure.
  std::uint64_t get(const std::string& key) {
    std::size_t length = 0;
    std::byte buffer[2 * kValueBytes];
    status_ = mc_get(handle(), {key.data(), key.size()}, buffer, sizeof buffer, &length);
    if (status_ != MC_OK) return 0;
    const auto version = version_in(key, std::span(buffer).first(length));
    EXPECT_TRUE(version.has_value()) << kWrongBytes << key;
    return version.value_or(0);
  }
  mc_status last_status() const { return status_; }
  mc_client* handle() const { return client_.handle(); }

 private:
  OpenClient client_;
  mc_status status_ = MC_OK;
};

// Short and long keys by turns: a long key has a record outside the entry.
std::string key_of(unsigned number) {
  std::string key = "object-" + std::to_string(number) + "-";
  key.resize(shm::kShortKeyBytes + number % 2, 'k');
  return key;
}

// A part of a memory file that only the keeper still holds.
class KeptPart {
 public:
  KeptPart(const Host& host, const std::string& name) {
    std::error_code error;
    const std::string fds = "/proc/" + std::to_string(host.keeper()) + "/fd";
    for (const auto& entry : std::filesystem::directory_iterator(fds, error)) {
      const std::string target = std::filesystem::read_symlink(entry.path(), error).string();
      if (target.find("memfd:" + name + " ") == std::string::npos) continue;
      const Fd file(::open(entry.path().c_str(), O_RDWR | O_CLOEXEC));
      size_ = std::filesystem::file_size(entry.path(), error);
      void* at = ::mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0);
      if (at != MAP_FAILED) data_ = static_cast<unsigned char*>(at);
    }
  }
  ~KeptPart() {
    if (data_ != nullptr) ::munmap(data_, size_);
  }
  KeptPart(const KeptPart&) = delete;
  KeptPart& operator=(const KeptPart&) = delete;
  unsigned char* data() const { return data_; }

 private:
  unsigned char* data_ = nullptr;
  std::size_t size_ = 0;
};

struct KeptIndex {
  explicit KeptIndex(const Host& host)
      : header_part(host, "mc-index0"),
        entries_part(host, "mc-index3"),
        keys_part(host, "mc-index4") {}
  bool is_there() const {
    return header_part.data() != nullptr && entries_part.data() != nullptr &&
           keys_part.data() != nullptr;
  }
  shm::IndexHeader* header() const {
    return reinterpret_cast<shm::IndexHeader*>(header_part.data());
  }
  shm::Entry* entries() const { return reinterpret_cast<shm::Entry*>(entries_part.data()); }

  const KeptPart header_part, entries_part, keys_part;
};

bool scrubbed(Host& host) {
  return host.status_becomes([](const Json::Value& status) {
    const Json::Value pool = pool_in(status, "default");
    return pool["verified"].asUInt64() >= pool["recovered"].asUInt64();
  });
}

// Systemd's end of NOTIFY_SOCKET: takes all messages, and drops their descriptors.
class Manager {
 public:
  explicit Manager(const std::string& path) : socket_(::socket(AF_UNIX, SOCK_DGRAM, 0)) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    path.copy(address.sun_path, sizeof address.sun_path - 1);
    EXPECT_EQ(::bind(socket_.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
    thread_ = std::thread([this] {
      char text[4096];
      for (ssize_t size = 0; (size = ::recv(socket_.get(), text, sizeof text, 0)) > 0;) {
        const std::string_view told(text, static_cast<std::size_t>(size));
        if (told.starts_with("EXTEND_TIMEOUT_USEC=")) was_asked_for_time_ = true;
      }
    });
  }
  ~Manager() {
    ::shutdown(socket_.get(), SHUT_RDWR);
    thread_.join();
  }
  Manager(const Manager&) = delete;
  Manager& operator=(const Manager&) = delete;
  bool was_asked_for_time() const { return was_asked_for_time_; }

 private:
  std::atomic<bool> was_asked_for_time_ = false;
  const Fd socket_;
  std::thread thread_;
};

void garble(unsigned char* at, std::size_t size, std::mt19937& random) {
  for (std::size_t i = 0; i < size; ++i) at[i] = static_cast<unsigned char>(random());
}

class Recovery : public ::testing::Test {
 protected:
  void fill(unsigned count) {
    Client client(host_);
    for (unsigned i = 0; i < count; ++i) ASSERT_EQ(client.put(key_of(i), i + 1), MC_OK);
  }
  shm::Entry* live_entry(const KeptIndex& index, unsigned wanted) {
    shm::Entry* const entries = index.entries();
    for (std::uint64_t id = 0; id < index.header()->entry_count.load_relaxed(); ++id) {
      if (shm::state_of(entries[id].version.load_relaxed()) != shm::EntryState::kLive) continue;
      if (wanted-- == 0) return &entries[id];
    }
    return nullptr;
  }
  // Number of objects of fill() that exist and have the right bytes.
  unsigned served(Client& client, unsigned count) {
    unsigned present = 0;
    for (unsigned i = 0; i < count; ++i) {
      const std::uint64_t version = client.get(key_of(i));
      EXPECT_TRUE(version == 0 || version == i + 1) << key_of(i);
      present += version != 0 ? 1u : 0u;
    }
    return present;
  }

  Host host_;
};

}  // namespace

TEST(LargeRecovery, AHundredThousandObjectsAreBackAfterTheAgentWasKilled) {
  constexpr unsigned kObjects = 100'000;
  constexpr unsigned kBatch = 1000;
  HostOptions options;
  options.pool_mib = 512;
  options.max_pool_mib = 512;
  Host host(options);
  host.serve();
  {
    Client client(host);
    for (unsigned i = 0; i < kObjects; ++i) ASSERT_EQ(client.put(key_of(i), i + 1), MC_OK);
  }
  host.kill_agent();
  const std::uint64_t start_ns = now_ns();
  host.start_agent();
  Client client(host);
  EXPECT_EQ(client.get(key_of(kObjects - 1)), kObjects);
  const double first_s = seconds_since(start_ns);
  std::vector<std::string> keys;
  std::vector<mc_slice> slices;
  for (unsigned i = 0; i < kObjects; ++i) keys.push_back(key_of(i));
  for (const std::string& key : keys) slices.push_back({key.data(), key.size()});
  std::vector<mc_status> statuses(kObjects, MC_NOT_FOUND);
  const double before_s = seconds_since(start_ns);
  for (unsigned at = 0; at < kObjects; at += kBatch) {
    ASSERT_EQ(mc_exists_batch(client.handle(), &slices[at], kBatch, &statuses[at]), MC_OK);
  }
  const double all_s = first_s + seconds_since(start_ns) - before_s;
  for (unsigned i = 0; i < kObjects; ++i) {
    ASSERT_EQ(statuses[i], MC_OK) << keys[i];
    ASSERT_EQ(client.get(keys[i]), i + 1);
  }
  std::printf(
      "%u objects: from exec to the first get %.3f s, to all found %.3f s, all read %.3f s\n",
      kObjects, first_s, all_s, seconds_since(start_ns));
}

TEST_F(Recovery, AKilledKeeperIsReplacedAndNothingIsLostAfterwards) {
  host_.serve();
  Client client(host_);
  for (unsigned i = 0; i < 100; ++i) ASSERT_EQ(client.put(key_of(i), i + 1), MC_OK);
  for (int round = 0; round < 3; ++round) {
    const pid_t before = host_.keeper();
    ASSERT_GT(before, 0);
    host_.kill_keeper();
    const std::uint64_t deadline_ns = now_ns() + kWatchdogNs;
    constexpr unsigned kWanted =
        Host::kNodeDescriptors + Host::kPoolDescriptors + Host::kSessionDescriptors;
    while ((host_.keeper() == before || host_.kept_descriptors() < kWanted) &&
           now_ns() < deadline_ns) {
      host_.status();
    }
    ASSERT_NE(host_.keeper(), before);
    host_.kill_agent();
    host_.serve();
    EXPECT_EQ(served(client, 100), 100u);
    EXPECT_EQ(client.put(key_of(0), 1), MC_OK) << mc_last_error();
  }
}

TEST_F(Recovery, AgentAndKeeperThatDieTogetherLoseNothing) {
  host_.serve();
  Client client(host_);
  for (unsigned i = 0; i < 100; ++i) ASSERT_EQ(client.put(key_of(i), i + 1), MC_OK);
  for (int round = 0; round < 3; ++round) {
    ASSERT_TRUE(until([&] { return has_standby(host_.directory()); }));
    host_.agent().signal(SIGKILL);
    host_.kill_keeper();
    host_.agent().wait_for_end();
    host_.serve();
    EXPECT_EQ(served(client, 100), 100u) << kLostObject << "round " << round;
    EXPECT_EQ(client.put(key_of(0), 1), MC_OK) << mc_last_error();
  }
}

// The next agent would never notice the end of such a process.
TEST_F(Recovery, ASessionWhoseProcessCannotBeWatchedEndsWithALineInTheLog) {
  host_.serve();
  Client client(host_);
  ASSERT_EQ(client.put("key", 1), MC_OK);
  host_.kill_agent();
  ASSERT_NO_FATAL_FAILURE(replace_kept_pidfds(host_.directory()));
  host_.serve();
  EXPECT_TRUE(host_.log_shows("event=session_not_resumed")) << host_.log_text();
  EXPECT_EQ(client.get("key"), 1u);
  EXPECT_EQ(client.put("key", 2), MC_OK) << mc_last_error();
  EXPECT_EQ(client.get("key"), 2u);
  EXPECT_EQ(host_.status()["sessions"].size(), 1u);
}

TEST_F(Recovery, WithoutAgentAndKeeperClientsGoOnWithAnEmptyPool) {
  host_.serve();
  Client client(host_);
  ASSERT_EQ(client.put(key_of(0), 1), MC_OK);
  mc_client_info before = {};
  before.struct_size = sizeof before;
  ASSERT_EQ(mc_get_client_info(client.handle(), &before), MC_OK);
  stop_process(host_.agent().pid());  // otherwise the agent would replace the keeper
  kill_keeper_and_standby(host_.directory());
  host_.kill_agent();
  host_.serve();
  const std::uint64_t deadline_ns = now_ns() + kWatchdogNs;
  while (client.get(key_of(0)) != 0 && now_ns() < deadline_ns) {
    mc_ping(client.handle(), 0);
  }
  EXPECT_EQ(client.get(key_of(0)), 0u);
  EXPECT_EQ(client.last_status(), MC_NOT_FOUND);
  for (unsigned i = 0; i < 20; ++i)
    EXPECT_EQ(client.put(key_of(i), i + 1), MC_OK) << mc_last_error();
  EXPECT_EQ(served(client, 20), 20u);
}

TEST(FullDescriptorStore, RefusesAClientUntilAnotherLeaves) {
  HostOptions options;
  options.flags = {"--descriptor-store", "systemd"};
  Host host(options);
  Manager manager(host.directory() + "/notify");
  // Room for one client.
  const std::string room =
      std::to_string(Host::kNodeDescriptors + Host::kPoolDescriptors + Host::kSessionDescriptors);
  host.start_agent({"NOTIFY_SOCKET=" + host.directory() + "/notify", "FDSTORE=" + room});
  auto first = std::make_unique<Client>(host);
  EXPECT_EQ(first->put("key", 1), MC_OK);
  mc_open_options open = MC_OPEN_OPTIONS_INIT;
  const std::string socket = host.socket();
  open.agent = socket.c_str();
  open.timeout_ns = kWatchdogNs / 2;
  mc_client* second = nullptr;
  EXPECT_EQ(mc_open(&open, &second), MC_NO_SPACE);
  EXPECT_NE(std::string(mc_last_error()).find("FileDescriptorStoreMax=" + room), std::string::npos)
      << mc_last_error();
  EXPECT_EQ(first->get("key"), 1u);
  first.reset();
  EXPECT_TRUE(until([&] { return mc_open(&open, &second) == MC_OK; })) << mc_last_error();
  mc_close(second);
}

TEST(RecoveringAgent, AsksSystemdForTime) {
  HostOptions options;
  options.flags = {"--descriptor-store", "keeper"};
  Host host(options);
  Manager manager(host.directory() + "/notify");
  const std::vector<std::string> environment = {"NOTIFY_SOCKET=" + host.directory() + "/notify"};
  host.start_agent(environment);
  Client client(host);
  ASSERT_EQ(client.put("key", 1), MC_OK);
  EXPECT_FALSE(manager.was_asked_for_time());
  host.kill_agent();
  host.start_agent(environment);
  EXPECT_EQ(client.put("other", 1), MC_OK);
  EXPECT_EQ(client.get("key"), 1u);
  EXPECT_TRUE(until([&] { return manager.was_asked_for_time(); }));
}

TEST_F(Recovery, EveryObjectIsFoundWhileTheNextAgentRecovers) {
  constexpr unsigned kObjects = 200;
  host_.serve();
  fill(kObjects);
  Client client(host_);
  ASSERT_EQ(served(client, kObjects), kObjects);  // opens the thread's channel
  for (const char* at : {"recover.adopted", "recover.table_filled", "recover.done"}) {
    SCOPED_TRACE(at);
    host_.kill_agent();
    host_.start_agent({std::string("MC_FAILPOINTS=") + at + "=stop"});
    ASSERT_TRUE(until([&] { return host_.agent().look() == Child::State::kStopped; }));
    EXPECT_EQ(served(client, kObjects), kObjects) << kLostObject << "a miss";
    host_.agent().signal(SIGCONT);
    EXPECT_EQ(host_.pool()["recovered"].asUInt64(), kObjects);
    EXPECT_EQ(served(client, kObjects), kObjects) << kLostObject << "a miss";
  }
}

// Sizes of the default namespace's pool, in MiB.
std::uint64_t target_mib(Host& host) {
  Json::Value question;
  question["verb"] = "segments";
  return host.ask(question)["segments"][0]["target_bytes"].asUInt64() >> 20;
}
void resize(Host& host, std::uint64_t mib) {
  Json::Value question;
  question["verb"] = "resize";
  question["namespace"] = "default";
  question["pool_bytes"] = Json::UInt64(mib << 20);
  EXPECT_EQ(host.ask(question)["target_bytes"].asUInt64() >> 20, mib);
}

TEST_F(Recovery, AKillAfterAResizeLosesNothing) {
  constexpr unsigned kObjects = 2500;  // 12 MiB of 8
  host_.serve();
  resize(host_, 24);
  Client client(host_);
  ASSERT_TRUE(until([&] { return pools_have_memory(host_.ask(pool_memory_question())); }));
  for (unsigned i = 0; i < kObjects; ++i) ASSERT_EQ(client.put(key_of(i), i + 1), MC_OK);
  ASSERT_EQ(served(client, kObjects), kObjects);
  for (int round = 0; round < 2; ++round) {
    host_.kill_agent();
    host_.serve();
    EXPECT_EQ(target_mib(host_), 24u);
    EXPECT_EQ(client.put("another", 1), MC_OK) << mc_last_error();
    EXPECT_EQ(served(client, kObjects), kObjects) << kLostObject;
  }
}

TEST_F(Recovery, APoolBytesThatWasConfiguredAnewWinsOverAResize) {
  host_.serve();
  resize(host_, 24);
  host_.kill_agent();
  host_.options().pool_mib = 12;
  host_.serve();
  EXPECT_EQ(target_mib(host_), 12u);
  host_.kill_agent();
  host_.serve();
  EXPECT_EQ(target_mib(host_), 12u);
  resize(host_, 4);
  host_.kill_agent();
  host_.serve();
  EXPECT_EQ(target_mib(host_), 4u);
}

TEST_F(Recovery, DamagedObjectsAreSetAsideAndTheRestIsServed) {
  constexpr unsigned kObjects = 240;
  constexpr unsigned kDamaged = 8;  // of each kind
  host_.serve();
  fill(kObjects);
  host_.kill_agent();
  {
    std::mt19937 random(1);
    const KeptIndex index(host_);
    const KeptPart pool(host_, "mc-pool0");
    ASSERT_TRUE(index.is_there());
    ASSERT_NE(pool.data(), nullptr);
    std::vector<shm::Entry*> entries;
    for (unsigned i = 0; i < 3 * kDamaged; ++i) entries.push_back(live_entry(index, i * 9));
    for (unsigned i = 0; i < kDamaged; ++i) {
      garble(reinterpret_cast<unsigned char*>(entries[i]), sizeof(shm::Entry), random);
      const auto key = std::bit_cast<shm::KeyField>(entries[kDamaged + i]->key.load_relaxed());
      const bool is_short = key.key_bytes <= shm::kShortKeyBytes;
      unsigned char* record = index.keys_part.data() + key.record * shm::kRecordUnitBytes;
      garble(is_short ? entries[kDamaged + i]->short_key : record, key.key_bytes, random);
      pool.data()[entries[2 * kDamaged + i]->extent.load_relaxed() + i * 500] ^= 1;
    }
  }
  host_.serve();
  ASSERT_TRUE(host_.status_becomes([](const Json::Value& status) {
    return pool_in(status, "default")["corrupt"].asUInt64() == kDamaged;
  })) << host_.pool().toStyledString();
  ASSERT_TRUE(scrubbed(host_)) << host_.pool().toStyledString();
  EXPECT_EQ(host_.pool()["corrupt"].asUInt64(), kDamaged);
  EXPECT_GE(host_.pool()["set_aside"].asUInt64(), kDamaged);
  Client client(host_);
  EXPECT_EQ(served(client, kObjects), kObjects - 3 * kDamaged);
  for (unsigned i = 0; i < kObjects; ++i) EXPECT_EQ(client.put(key_of(i), i + 1), MC_OK);
  EXPECT_EQ(served(client, kObjects), kObjects);
}

TEST_F(Recovery, NoFieldOfAnEntryCanBeDamagedIntoWrongBytes) {
  constexpr unsigned kObjects = 100;
  std::mt19937 random(2);
  const auto pick = [&](unsigned below) { return static_cast<unsigned>(random() % below); };
  host_.serve();
  for (unsigned round = 0; round < 30 && !HasFailure(); ++round) {
    fill(kObjects);
    host_.kill_agent();
    {
      const KeptIndex index(host_);
      ASSERT_TRUE(index.is_there());
      for (unsigned i = 0; i < 10; ++i) {
        auto* entry = reinterpret_cast<shm::Word64*>(live_entry(index, pick(kObjects)));
        const auto* other = reinterpret_cast<shm::Word64*>(live_entry(index, pick(kObjects)));
        if (entry == nullptr || other == nullptr) continue;
        const unsigned word = pick(sizeof(shm::Entry) / sizeof(shm::Word64));
        const std::uint64_t values[] = {0,
                                        1,
                                        ~std::uint64_t{0},
                                        entry[word].load_relaxed() + 256,
                                        entry[word].load_relaxed() ^ (1ull << pick(64)),
                                        other[word].load_relaxed()};
        entry[word].store_relaxed(values[pick(6)]);
      }
    }
    host_.serve();
    ASSERT_TRUE(scrubbed(host_)) << "round " << round << "\n" << host_.log_text();
    Client client(host_);
    served(client, kObjects);
    EXPECT_EQ(accounting_error(host_, "default"), "") << "round " << round;
  }
  EXPECT_EQ(emptying_error(host_, "default"), "");
}

// Damage while the agent serves: the index then names memory that was never reserved.
TEST_F(Recovery, AnEntryThatIsDamagedWhileTheAgentServesEndsNeitherAgentNorReader) {
  constexpr unsigned kObjects = 20;
  constexpr std::uint64_t kBeyond = 32u
                                    << 20;  // of 8 MiB that are reserved, and of 64 MiB that may be
  host_.serve();
  fill(kObjects);
  const pid_t agent = host_.agent().pid();
  {
    const KeptIndex index(host_);
    ASSERT_TRUE(index.is_there());
    live_entry(index, 0)->extent.store_relaxed(kBeyond);
    shm::Entry* const other = live_entry(index, 1);  // an extent record beyond the keys
    auto field = std::bit_cast<shm::KeyField>(other->key.load_relaxed());
    field.extent_count = 2;
    other->extent.store_relaxed(kBeyond / shm::kRecordUnitBytes);
    other->key.store_relaxed(std::bit_cast<std::uint64_t>(field));
  }
  Client client(host_);
  EXPECT_EQ(served(client, kObjects), kObjects - 2);
  const std::uint64_t before = host_.pool()["verified"].asUInt64();
  ASSERT_TRUE(host_.status_becomes([&](const Json::Value& status) {
    return pool_in(status, "default")["verified"].asUInt64() >= before + 2 * kObjects;
  })) << "the scrubber has stopped";
  EXPECT_EQ(host_.agent().pid(), agent);
  EXPECT_EQ(served(client, kObjects), kObjects - 2);
}

TEST_F(Recovery, ADestroyedIndexHeaderMeansAnEmptyPoolAndALineInTheLog) {
  host_.serve();
  fill(20);
  host_.kill_agent();
  {
    std::mt19937 random(3);
    const KeptPart header(host_, "mc-index0");
    ASSERT_NE(header.data(), nullptr);
    garble(header.data(), shm::kPageBytes, random);
  }
  host_.serve();
  Client client(host_);
  EXPECT_EQ(served(client, 20), 0u);
  EXPECT_EQ(client.put(key_of(0), 1), MC_OK);
  EXPECT_EQ(client.get(key_of(0)), 1u);
  EXPECT_TRUE(host_.log_shows("event=pool_set_aside namespace=default")) << host_.log_text();
}

TEST(FailedStart, LeavesNoKeeper) {
  HostOptions options;
  options.pool_mib = options.max_pool_mib = 16u << 20;  // 16 TiB: more than any host has
  options.flags = {"--huge-pages", "require"};
  Host host(options);
  host.start_agent();
  ASSERT_TRUE(until([&] { return host.agent().look() == Child::State::kEnded; }));
  EXPECT_NE(host.agent().exit_status(), 0);
  EXPECT_EQ(host.keeper(), 0) << host.log_text();
}

TEST_F(Recovery, ASecondAgentOnTheSameDirectoryIsRefused) {
  host_.serve();
  Client client(host_);
  ASSERT_EQ(client.put(key_of(0), 1), MC_OK);
  Command command;
  command.words = {(MC_TEST_BIN "/mc-agent"), "--runtime-dir", host_.directory(), "--pool-bytes",
                   "8MiB"};
  command.log = host_.directory() + "/second.log";
  Child second(command);
  second.wait_for_end();
  EXPECT_TRUE(WIFEXITED(second.exit_status()));
  EXPECT_EQ(WEXITSTATUS(second.exit_status()), 1);
  std::ifstream log(command.log);
  const std::string text((std::istreambuf_iterator<char>(log)), std::istreambuf_iterator<char>());
  EXPECT_NE(text.find("another mc-agent uses runtime_dir " + host_.directory()), std::string::npos)
      << text;
  EXPECT_EQ(client.get(key_of(0)), 1u);
  EXPECT_EQ(client.put(key_of(1), 2), MC_OK);
}

}  // namespace mc::crash
