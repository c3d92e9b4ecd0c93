// SPDX-License-Identifier: Apache-2.0
//
// A suite for every descriptor store, then tests for the keeper and for systemd.
#include "agent/keeper/descriptor_store.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <thread>

#include "agent/keeper/keeper_protocol.h"
#include "keepers.h"
#include "patience.h"
#include "process_stop.h"

namespace mc::agent {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr std::uint32_t kKeepSeconds = 600;

int file_of(std::string_view text) {
  const int fd = ::memfd_create("mc-test", MFD_CLOEXEC);
  EXPECT_EQ(::write(fd, text.data(), text.size()), static_cast<ssize_t>(text.size()));
  return fd;
}

std::string text_of(const Fd& fd) {
  std::string text(256, '\0');
  const ssize_t got = ::pread(fd.get(), text.data(), text.size(), 0);
  text.resize(got > 0 ? static_cast<std::size_t>(got) : 0);
  return text;
}

std::map<std::string, std::string> texts_of(const Result<std::map<std::string, Fd>>& kept) {
  EXPECT_TRUE(kept) << kept.error().to_string();
  std::map<std::string, std::string> texts;
  if (!kept) return texts;
  for (const auto& [name, fd] : *kept) texts[name] = text_of(fd);
  return texts;
}

using Texts = std::map<std::string, std::string>;

Status put_text(DescriptorStore& store, const std::string& name, std::string_view text) {
  const Fd fd(file_of(text));
  return store.put(name, fd.get());
}

// A fresh directory and the means to make several stores there in turn.
class Place {
 public:
  Place() {
    std::string pattern = ::testing::TempDir() + "mc-store-XXXXXX";
    EXPECT_NE(::mkdtemp(pattern.data()), nullptr);
    dir_ = pattern;
  }
  virtual ~Place() { std::filesystem::remove_all(dir_); }
  virtual Result<std::unique_ptr<DescriptorStore>> open() = 0;
  // True if the next store finds the descriptors of this store.
  virtual bool keeps() const = 0;
  const std::string& dir() const { return dir_; }

 private:
  std::string dir_;
};

class NullPlace final : public Place {
 public:
  Result<std::unique_ptr<DescriptorStore>> open() override { return make_null_store(); }
  bool keeps() const override { return false; }
};

class KeeperPlace final : public Place {
 public:
  ~KeeperPlace() override {
    end_keeper(dir());
    for (const pid_t pid : keepers_) {
      ::kill(pid, SIGKILL);
      ::waitpid(pid, nullptr, 0);
    }
  }

  Result<std::unique_ptr<DescriptorStore>> open() override { return open(kKeepSeconds); }
  Result<std::unique_ptr<DescriptorStore>> open(std::uint32_t keep_seconds) {
    return make_keeper_store(dir(), keep_seconds, [this, keep_seconds] {
      spawn(keep_seconds);
      return Status();
    });
  }
  bool keeps() const override { return true; }

  pid_t spawn(std::uint32_t keep_seconds = kKeepSeconds) {
    const pid_t pid = ::fork();
    if (pid == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      ::_exit(run_keeper(dir(), keep_seconds));
    }
    EXPECT_GT(pid, 0);
    if (pid > 0) keepers_.push_back(pid);  // never kill(-1)
    return pid;
  }

  // Reaps a keeper of this place and returns its exit code, or -1 if a signal ended it.
  int wait_for_end(pid_t pid) {
    int status = 0;
    const pid_t ended = ::waitpid(pid, &status, 0);
    EXPECT_GT(ended, 0);
    std::erase(keepers_, ended);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }
  int wait_for_any_end() { return wait_for_end(-1); }
  pid_t keeper() const { return keepers_.back(); }
  std::size_t keeper_count() const { return keepers_.size(); }
  std::string socket_path() const { return dir() + std::string(kKeeperSocketName); }

 private:
  std::vector<pid_t> keepers_;
};

// The service manager's side: reads the notify socket and passes the kept descriptors to the next
// store from number 3 on, as after exec.
class SystemdPlace final : public Place {
 public:
  SystemdPlace() {
    for (int fd = kFirst; fd < kFirst + kPassed; ++fd) own_.emplace_back(lift(fd));
    const std::string path = dir() + "/notify";
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path, path.data(), path.size());
    socket_.reset(lift(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)));
    EXPECT_EQ(::bind(socket_.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
    ::setenv("NOTIFY_SOCKET", path.c_str(), 1);
  }
  ~SystemdPlace() override {
    for (const char* name : {"NOTIFY_SOCKET", "LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES"}) {
      ::unsetenv(name);
    }
    for (int i = 0; i < kPassed; ++i) {
      const Fd& own = own_[static_cast<std::size_t>(i)];
      if (own) ::dup2(own.get(), kFirst + i);
    }
  }

  Result<std::unique_ptr<DescriptorStore>> open() override {
    read_notifications();
    pass(::getpid());
    return make_systemd_store();
  }
  bool keeps() const override { return true; }

  void pass(pid_t receiver) {
    if (kept_.empty()) return;  // then systemd sets none of the variables
    std::string names;
    int next = kFirst;
    for (const auto& [name, fd] : kept_) {
      ASSERT_LT(next, kFirst + kPassed);
      ASSERT_GE(::dup2(fd.get(), next++), 0);
      names += (names.empty() ? "" : ":") + name;
    }
    ::setenv("LISTEN_PID", std::to_string(receiver).c_str(), 1);
    ::setenv("LISTEN_FDS", std::to_string(kept_.size()).c_str(), 1);
    ::setenv("LISTEN_FDNAMES", names.c_str(), 1);
  }

  // Messages since the last call.
  std::vector<std::string> read_notifications() {
    std::vector<std::string> texts;
    for (;;) {
      auto message = receive_message(socket_.get(), 4096);
      if (!message) return texts;
      const auto* const first = reinterpret_cast<const char*>(message->bytes.data());
      texts.emplace_back(first, message->bytes.size());
      follow(texts.back(), std::move(message->fds));
    }
  }
  void keep(const std::string& name, Fd fd) { kept_[name] = Fd(lift(fd.release())); }

 private:
  static constexpr int kFirst = 3;
  static constexpr int kPassed = 16;
  static constexpr int kHigh = 64;

  // Moves a descriptor away from the numbers that will be passed.
  static int lift(int fd) {
    const int high = ::fcntl(fd, F_DUPFD_CLOEXEC, kHigh);
    if (high >= 0) ::close(fd);
    return high;
  }

  void follow(const std::string& text, std::vector<Fd> fds) {
    const std::string rest = text.substr(text.find("FDNAME=") + 7);
    const std::string name = rest.substr(0, rest.find('\n'));
    if (text.starts_with("FDSTOREREMOVE=1\n")) kept_.erase(name);
    if (!text.starts_with("FDSTORE=1\n")) return;
    ASSERT_EQ(fds.size(), 1u);
    EXPECT_FALSE(kept_.contains(name)) << "systemd would keep two of " << name;
    keep(name, std::move(fds.front()));
  }

  std::vector<Fd> own_;
  Fd socket_;
  std::map<std::string, Fd> kept_;
};

using MakePlace = std::unique_ptr<Place> (*)();

struct Kind {
  const char* name;
  MakePlace make;
};
void PrintTo(const Kind& kind, std::ostream* out) { *out << kind.name; }

class DescriptorStoreTest : public ::testing::TestWithParam<Kind> {
 protected:
  void SetUp() override { place_ = GetParam().make(); }

  std::unique_ptr<DescriptorStore> open() {
    auto store = place_->open();
    EXPECT_TRUE(store) << store.error().to_string();
    return store ? std::move(*store) : nullptr;
  }
  Texts expected(Texts texts) const { return place_->keeps() ? std::move(texts) : Texts(); }

  std::unique_ptr<Place> place_;
};

TEST_P(DescriptorStoreTest, AFreshStoreIsEmpty) {
  EXPECT_TRUE(texts_of(open()->take_all()).empty());
}

TEST_P(DescriptorStoreTest, TheNextOwnerTakesWhatTheLastOnePut) {
  auto store = open();
  ASSERT_TRUE(store->take_all());
  EXPECT_TRUE(put_text(*store, "index", "i").ok());
  EXPECT_TRUE(put_text(*store, "pool-0.a_b", "p").ok());
  store.reset();  // without a goodbye
  EXPECT_EQ(texts_of(open()->take_all()), expected({{"index", "i"}, {"pool-0.a_b", "p"}}));
}

TEST_P(DescriptorStoreTest, WhatWasTakenIsKeptForTheOwnerAfterNext) {
  auto store = open();
  ASSERT_TRUE(store->take_all());
  EXPECT_TRUE(put_text(*store, "index", "i").ok());
  store.reset();
  for (int owner = 0; owner < 2; ++owner) {
    EXPECT_EQ(texts_of(open()->take_all()), expected({{"index", "i"}}));
  }
}

TEST_P(DescriptorStoreTest, APutReplacesAnOlderOneOfItsName) {
  auto store = open();
  EXPECT_TRUE(put_text(*store, "index", "old").ok());
  EXPECT_TRUE(put_text(*store, "index", "new").ok());
  store.reset();
  store = open();
  EXPECT_EQ(texts_of(store->take_all()), expected({{"index", "new"}}));
  EXPECT_TRUE(put_text(*store, "index", "newer").ok());
  store.reset();
  EXPECT_EQ(texts_of(open()->take_all()), expected({{"index", "newer"}}));
}

TEST_P(DescriptorStoreTest, ADroppedNameIsGone) {
  auto store = open();
  EXPECT_TRUE(put_text(*store, "a", "1").ok());
  EXPECT_TRUE(put_text(*store, "b", "2").ok());
  EXPECT_TRUE(store->drop("a").ok());
  EXPECT_TRUE(store->drop("never-put").ok());
  store.reset();
  EXPECT_EQ(texts_of(open()->take_all()), expected({{"b", "2"}}));
}

TEST_P(DescriptorStoreTest, AfterDropAllTheNextOwnerStartsEmpty) {
  auto store = open();
  EXPECT_TRUE(put_text(*store, "a", "1").ok());
  store.reset();
  store = open();
  ASSERT_TRUE(store->take_all());
  EXPECT_TRUE(put_text(*store, "b", "2").ok());
  EXPECT_TRUE(store->drop_all().ok());
  store.reset();
  EXPECT_TRUE(texts_of(open()->take_all()).empty());
}

TEST_P(DescriptorStoreTest, NamesAreHeldToTheirAlphabetAndLength) {
  auto store = open();
  EXPECT_TRUE(put_text(*store, std::string(200, 'n'), "long").ok());
  for (const std::string& bad :
       {std::string(), std::string(201, 'n'), std::string("a b"), std::string("a:b"),
        std::string("a\nb"), std::string("a\0b", 3), std::string("\xc3\xbc")}) {
    EXPECT_EQ(put_text(*store, bad, "x").code(), MC_INVALID_ARGUMENT);
    EXPECT_EQ(store->drop(bad).code(), MC_INVALID_ARGUMENT);
  }
  store.reset();
  EXPECT_EQ(texts_of(open()->take_all()), expected({{std::string(200, 'n'), "long"}}));
}

TEST_P(DescriptorStoreTest, AClosedDescriptorIsRefused) {
  EXPECT_EQ(open()->put("a", -1).code(), MC_INVALID_ARGUMENT);
}

TEST_P(DescriptorStoreTest, ALivingStoreReportsNoDeath) {
  auto store = open();
  EXPECT_TRUE(put_text(*store, "a", "1").ok());
  EXPECT_FALSE(store->death_fd() >= 0 && wait_readable(store->death_fd(), 0));
}

TEST_P(DescriptorStoreTest, AfterARestartPutsWorkAgain) {
  auto store = open();
  EXPECT_TRUE(put_text(*store, "a", "1").ok());
  EXPECT_TRUE(store->restart().ok());
  EXPECT_TRUE(put_text(*store, "a", "1").ok());
  store.reset();
  EXPECT_EQ(texts_of(open()->take_all()), expected({{"a", "1"}}));
}

INSTANTIATE_TEST_SUITE_P(
    Stores, DescriptorStoreTest,
    ::testing::Values(
        Kind{"null", [] { return std::unique_ptr<Place>(std::make_unique<NullPlace>()); }},
        Kind{"keeper", [] { return std::unique_ptr<Place>(std::make_unique<KeeperPlace>()); }},
        Kind{"systemd", [] { return std::unique_ptr<Place>(std::make_unique<SystemdPlace>()); }}),
    [](const auto& kind) { return kind.param.name; });

class KeeperTest : public ::testing::Test {
 protected:
  std::unique_ptr<DescriptorStore> open(std::uint32_t keep_seconds = kKeepSeconds) {
    auto store = place_.open(keep_seconds);
    EXPECT_TRUE(store) << store.error().to_string();
    return store ? std::move(*store) : nullptr;
  }
  void expect_death(const DescriptorStore& store) {
    EXPECT_TRUE(wait_readable(store.death_fd(), kWatchdogNs));
  }

  KeeperPlace place_;
};

TEST_F(KeeperTest, AKilledKeeperIsNoticedAndReplaced) {
  auto store = open();
  EXPECT_TRUE(put_text(*store, "a", "1").ok());
  const int death_fd = store->death_fd();
  ::kill(place_.keeper(), SIGKILL);
  expect_death(*store);
  EXPECT_EQ(put_text(*store, "b", "2").code(), MC_AGENT_UNAVAILABLE);
  ASSERT_TRUE(store->restart().ok());
  EXPECT_EQ(store->death_fd(), death_fd);
  EXPECT_FALSE(wait_readable(death_fd, 0));
  EXPECT_TRUE(put_text(*store, "b", "2").ok());
  store.reset();
  EXPECT_EQ(texts_of(open()->take_all()), (Texts{{"a", "1"}, {"b", "2"}}));
}

// A standby that has just been forked still holds the listener of the killed keeper.
TEST_F(KeeperTest, ARestartDoesNotTrustAListenerThatNobodyServes) {
  auto store = open();
  ASSERT_TRUE(store->drop_all().ok());
  auto listener = listen_unix(place_.socket_path(), 0600);
  ASSERT_TRUE(listener) << listener.error().to_string();
  std::thread standby([&] {
    EXPECT_TRUE(wait_readable(listener->get(), kWatchdogNs)) << "a connection waits";
    listener->reset();
  });
  EXPECT_TRUE(store->restart().ok());
  EXPECT_TRUE(put_text(*store, "a", "1").ok());
  standby.join();
}

TEST_F(KeeperTest, AStandbyTakesThePlaceOfAKilledKeeperAgainAndAgain) {
  Texts kept;
  for (const std::string name : {"a", "b", "c"}) {
    auto store = open();
    ASSERT_TRUE(until([&] { return has_standby(place_.dir()); }));
    const pid_t keeper = keeper_in(place_.dir());
    EXPECT_TRUE(put_text(*store, name, "1").ok());
    kept[name] = "1";
    EXPECT_TRUE(put_text(*store, "dropped", "1").ok());
    EXPECT_TRUE(store->drop("dropped").ok());
    ::kill(keeper, SIGKILL);
    ASSERT_TRUE(until([&] { return keeper_in(place_.dir()) != keeper; }));
    EXPECT_EQ(texts_of(open()->take_all()), kept);
  }
  EXPECT_EQ(place_.keeper_count(), 1u) << "an agent started another keeper";
}

TEST_F(KeeperTest, AStandbyThatDiesOrHangsIsReplaced) {
  auto store = open();
  const auto next_standby = [&](pid_t last) {
    pid_t standby = 0;
    EXPECT_TRUE(until([&] {
      standby = standby_of(place_.keeper());
      return standby > 0 && standby != last;
    }));
    return standby;
  };
  const pid_t first = next_standby(0);
  EXPECT_TRUE(put_text(*store, "a", "1").ok());
  ::kill(first, SIGKILL);
  const pid_t second = next_standby(first);
  stop_process(second);
  Texts kept;
  while (standby_of(place_.keeper()) == second) {
    const std::string name = "n" + std::to_string(kept.size());
    ASSERT_TRUE(put_text(*store, name, "1").ok());
    kept[name] = "1";
    ASSERT_LT(kept.size(), 4000u) << "the keeper waits for a standby that hangs";
  }
  kept["a"] = "1";
  next_standby(second);
  ::kill(place_.keeper(), SIGKILL);
  expect_death(*store);
  store.reset();
  ASSERT_TRUE(until([&] { return keeper_in(place_.dir()) != place_.keeper(); }));
  EXPECT_EQ(texts_of(open()->take_all()), kept);
}

TEST_F(KeeperTest, AStoppedKeeperIsAnErrorInBoundedTimeAndCanBeReplaced) {
  auto store = open();
  EXPECT_TRUE(put_text(*store, "a", "1").ok());
  stop_process(place_.keeper());
  EXPECT_EQ(put_text(*store, "b", "2").code(), MC_TIMEOUT);
  expect_death(*store);
  ASSERT_TRUE(store->restart().ok());
  EXPECT_TRUE(put_text(*store, "b", "2").ok());
  store.reset();
  EXPECT_EQ(texts_of(open()->take_all()), (Texts{{"a", "1"}, {"b", "2"}}));
}

TEST_F(KeeperTest, AStoppedKeeperFoundAtStartIsAnErrorAndCanBeReplaced) {
  open().reset();
  stop_process(place_.keeper());
  auto store = open();
  const auto kept = store->take_all();
  ASSERT_FALSE(kept);
  EXPECT_EQ(kept.error().code(), MC_TIMEOUT);
  ASSERT_TRUE(store->restart().ok());
  EXPECT_TRUE(texts_of(store->take_all()).empty());
}

TEST_F(KeeperTest, DropAllEndsTheKeeperAndFreesItsName) {
  auto store = open();
  EXPECT_TRUE(put_text(*store, "a", "1").ok());
  EXPECT_TRUE(store->drop_all().ok());
  EXPECT_NE(::access(place_.socket_path().c_str(), F_OK), 0);
  EXPECT_EQ(place_.wait_for_end(place_.keeper()), 0);
  expect_death(*store);
}

TEST_F(KeeperTest, TheKeeperEndsWhenNoAgentComesBackInTime) {
  auto store = open(1);
  EXPECT_TRUE(put_text(*store, "a", "1").ok());
  const pid_t keeper = place_.keeper();
  store.reset();
  EXPECT_EQ(place_.wait_for_end(keeper), 0);
  EXPECT_NE(::access(place_.socket_path().c_str(), F_OK), 0);
  EXPECT_TRUE(texts_of(open()->take_all()).empty());
}

TEST_F(KeeperTest, TheLatestAgentDecidesHowLongTheKeeperWaits) {
  open(kKeepSeconds).reset();
  const pid_t keeper = place_.keeper();
  auto store = open(1);
  ASSERT_TRUE(store->take_all());
  EXPECT_EQ(place_.keeper_count(), 1u);
  store.reset();
  EXPECT_EQ(place_.wait_for_end(keeper), 0);
}

TEST_F(KeeperTest, ASecondKeeperEndsAtOnceAndHarmsNothing) {
  auto store = open();
  EXPECT_TRUE(put_text(*store, "a", "1").ok());
  EXPECT_EQ(place_.wait_for_end(place_.spawn()), 0);
  store.reset();
  EXPECT_EQ(texts_of(open()->take_all()), (Texts{{"a", "1"}}));
}

TEST_F(KeeperTest, OfKeepersThatStartTogetherOneStays) {
  for (int i = 0; i < 6; ++i) place_.spawn();
  auto store = open();
  EXPECT_TRUE(put_text(*store, "a", "1").ok());
  while (place_.keeper_count() > 1) EXPECT_EQ(place_.wait_for_any_end(), 0);
  store.reset();
  EXPECT_EQ(texts_of(open()->take_all()), (Texts{{"a", "1"}}));
}

TEST_F(KeeperTest, AStaleSocketIsReplaced) {
  open().reset();
  kill_keeper_and_standby(place_.dir());
  EXPECT_EQ(::access(place_.socket_path().c_str(), F_OK), 0);
  EXPECT_TRUE(put_text(*open(), "a", "1").ok());
}

TEST_F(KeeperTest, ADirectoryThatIsMissingIsAnError) {
  const pid_t keeper = ::fork();
  if (keeper == 0) ::_exit(run_keeper(place_.dir() + "/missing", 1));
  int status = 0;
  ASSERT_EQ(::waitpid(keeper, &status, 0), keeper);
  EXPECT_EQ(WEXITSTATUS(status), 1);
}

TEST_F(KeeperTest, AKeeperThatCannotStartIsAnError) {
  const auto store =
      make_keeper_store(place_.dir(), 1, [] { return Status(MC_NO_MEMORY, "no processes left"); });
  ASSERT_FALSE(store);
  EXPECT_EQ(store.error().code(), MC_NO_MEMORY);
}

TEST_F(KeeperTest, TheProcessHasItsNameItsPidFileAndNothingOfItsParent) {
  const Fd inherited(file_of("secret"));
  auto store = open();
  ASSERT_TRUE(store->take_all());  // the answer shows that the start is over
  const std::string pid = std::to_string(place_.keeper());
  std::string text;
  std::ifstream(place_.dir() + "/keeper.pid") >> text;
  EXPECT_EQ(text, pid);
  std::ifstream("/proc/" + pid + "/comm") >> text;
  EXPECT_EQ(text, "mc-keeper");
  struct stat status {};
  ASSERT_EQ(::stat(place_.socket_path().c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0600u);
  std::array<char, 256> target{};
  for (int fd = 0; fd < 64; ++fd) {
    const std::string link = "/proc/" + pid + "/fd/" + std::to_string(fd);
    const ssize_t length = ::readlink(link.c_str(), target.data(), target.size());
    if (length < 0) continue;
    const std::string name(target.data(), static_cast<std::size_t>(length));
    EXPECT_TRUE(fd > 2 || name == "/dev/null") << name;
    EXPECT_THAT(name, ::testing::Not(HasSubstr("memfd")));
  }
}

TEST_F(KeeperTest, DescriptorsAreCounted) {
  auto store = open();
  const Fd fd(file_of("x"));
  std::size_t kept = 0;
  while (kept <= kMaxKeptDescriptors && store->put("n" + std::to_string(kept), fd.get()).ok()) {
    ++kept;
  }
  rlimit limit{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &limit), 0);
  const bool has_room = limit.rlim_max > kMaxKeptDescriptors + 100;
  EXPECT_TRUE(has_room ? kept == kMaxKeptDescriptors : kept < kMaxKeptDescriptors) << kept;
  EXPECT_EQ(store->put("one-more", fd.get()).code(), MC_QUOTA_EXCEEDED);
  EXPECT_TRUE(store->put("n0", fd.get()).ok());  // an existing name needs no room
  EXPECT_TRUE(store->drop("n1").ok());
  EXPECT_TRUE(store->put("one-more", fd.get()).ok());
  store.reset();
  if (!has_room) return;
  const rlimit raised{limit.rlim_max, limit.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &raised), 0);
  EXPECT_EQ(texts_of(open()->take_all()).size(), kept);
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &limit), 0);
}

TEST_F(KeeperTest, AnOwnerThatMayNotOpenAllOfThemGetsAnErrorAndTheKeeperLives) {
  auto store = open();
  const Fd fd(file_of("x"));
  for (int i = 0; i < 100; ++i) ASSERT_TRUE(store->put("n" + std::to_string(i), fd.get()).ok());
  rlimit limit{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &limit), 0);
  const rlimit narrow{64, limit.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &narrow), 0);
  const auto kept = store->take_all();
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &limit), 0);
  ASSERT_FALSE(kept);
  EXPECT_EQ(kept.error().code(), MC_NO_MEMORY);
  EXPECT_EQ(texts_of(open()->take_all()).size(), 100u);
}

// A connection of a misbehaving client.
class HostileAgentTest : public KeeperTest {
 protected:
  void SetUp() override {
    store_ = open();
    EXPECT_TRUE(put_text(*store_, "a", "1").ok());
  }
  // The keeper closes this connection and continues to serve the other.
  void expect_closed(const KeeperFrame& frame, std::size_t bytes, const std::vector<int>& fds) {
    auto agent = connect_unix(place_.socket_path(), kWatchdogNs);
    ASSERT_TRUE(agent);
    const auto all = std::as_bytes(std::span(&frame, 1));
    std::vector<std::byte> sent(all.begin(), all.end());
    sent.resize(bytes);
    ASSERT_TRUE(send_message(agent->get(), sent, fds).ok());
    ASSERT_TRUE(wait_readable(agent->get(), kWatchdogNs));
    const auto answer = receive_message(agent->get(), 4096);
    ASSERT_TRUE(answer);
    EXPECT_TRUE(answer->bytes.empty());
    EXPECT_EQ(texts_of(store_->take_all()), (Texts{{"a", "1"}}));
  }

  std::unique_ptr<DescriptorStore> store_;
};

TEST_F(HostileAgentTest, MalformedRequestsEndTheirConnectionOnly) {
  const Fd fd(file_of("x"));
  const KeeperFrame put = encode_keeper_message({KeeperVerb::kPut, MC_OK, 0, "b"});
  const std::size_t size = sizeof put;
  expect_closed(put, size, {});                    // no descriptor
  expect_closed(put, size, {fd.get(), fd.get()});  // two
  expect_closed(put, size - 1, {fd.get()});        // too short
  expect_closed(put, size + 1, {fd.get()});        // too long
  expect_closed(encode_keeper_message({KeeperVerb::kReply, MC_OK, 0, ""}), size, {});
  expect_closed(encode_keeper_message({KeeperVerb::kItem, MC_OK, 0, "b"}), size, {fd.get()});
  const std::function<void(KeeperFrame&)> damages[] = {
      [](KeeperFrame& f) { f.magic ^= 1; },       [](KeeperFrame& f) { f.version = 2; },
      [](KeeperFrame& f) { f.verb = 0; },         [](KeeperFrame& f) { f.verb = 7; },
      [](KeeperFrame& f) { f.code = 1; },         [](KeeperFrame& f) { f.name_bytes = 0; },
      [](KeeperFrame& f) { f.name_bytes = 201; }, [](KeeperFrame& f) { f.name[0] = '/'; },
      [](KeeperFrame& f) { f.name[199] = 'x'; },  [](KeeperFrame& f) { f.name_bytes = ~0u; },
  };
  for (const auto& damage : damages) {
    KeeperFrame frame = put;
    damage(frame);
    expect_closed(frame, size, {fd.get()});
  }
}

TEST_F(HostileAgentTest, AnotherUserIsTurnedAway) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root, to become another user";
  ASSERT_EQ(::chmod(place_.dir().c_str(), 0711), 0);
  ASSERT_EQ(::chmod(place_.socket_path().c_str(), 0666), 0);
  const KeeperFrame take = encode_keeper_message({KeeperVerb::kTakeAll, MC_OK, 1, ""});
  const pid_t child = ::fork();
  if (child == 0) {
    if (::setgid(65534) != 0 || ::setuid(65534) != 0) ::_exit(10);
    auto agent = connect_unix(place_.socket_path(), kWatchdogNs);
    if (!agent) ::_exit(11);
    // The keeper may have closed the connection already; then the send fails, which also passes.
    (void)send_message(agent->get(), std::as_bytes(std::span(&take, 1))).ok();
    if (!wait_readable(agent->get(), kWatchdogNs)) ::_exit(12);
    const auto answer = receive_message(agent->get(), 4096);
    ::_exit(!answer || answer->bytes.empty() ? 0 : 13);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(WEXITSTATUS(status), 0);
  EXPECT_EQ(texts_of(store_->take_all()), (Texts{{"a", "1"}}));
}

TEST_F(HostileAgentTest, TooManyConnectionsAreTurnedAway) {
  std::vector<Fd> crowd;
  bool refused = false;
  for (int i = 0; i < 64 && !refused; ++i) {
    auto agent = connect_unix(place_.socket_path(), kWatchdogNs);
    ASSERT_TRUE(agent);
    const KeeperFrame drop = encode_keeper_message({KeeperVerb::kDrop, MC_OK, 0, "none"});
    refused = !send_message(agent->get(), std::as_bytes(std::span(&drop, 1))).ok();
    if (!refused) {
      ASSERT_TRUE(wait_readable(agent->get(), kWatchdogNs));
      const auto answer = receive_message(agent->get(), 4096);
      refused = !answer || answer->bytes.empty();
    }
    crowd.push_back(std::move(*agent));
  }
  EXPECT_TRUE(refused);
  EXPECT_EQ(texts_of(store_->take_all()), (Texts{{"a", "1"}}));
}

TEST_F(KeeperTest, AForgedAnswerIsAnError) {
  auto listener = listen_unix(place_.socket_path(), 0600);
  ASSERT_TRUE(listener);
  auto store = open();
  const Fd keeper(::accept(listener->get(), nullptr, nullptr));
  KeeperFrame forged = encode_keeper_message({KeeperVerb::kItem, MC_OK, 0, "a"});
  ASSERT_TRUE(send_message(keeper.get(), std::as_bytes(std::span(&forged, 1))).ok());
  const auto kept = store->take_all();
  ASSERT_FALSE(kept);
  EXPECT_EQ(kept.error().code(), MC_INTERNAL);
  expect_death(*store);
}

TEST(SystemdStoreTest, WithoutANotifySocketItIsUnsupported) {
  ::unsetenv("NOTIFY_SOCKET");
  const auto store = make_systemd_store();
  ASSERT_FALSE(store);
  EXPECT_EQ(store.error().code(), MC_UNSUPPORTED);
}

TEST(SystemdStoreTest, NotificationsHaveTheFormSystemdReads) {
  SystemdPlace place;
  auto store = place.open();
  ASSERT_TRUE(store);
  EXPECT_TRUE(put_text(**store, "index", "i").ok());
  EXPECT_THAT(place.read_notifications(), ElementsAre("FDSTORE=1\nFDNAME=index\nFDPOLL=0"));
  EXPECT_TRUE((*store)->drop("index").ok());
  EXPECT_THAT(place.read_notifications(), ElementsAre("FDSTOREREMOVE=1\nFDNAME=index"));
}

TEST(SystemdStoreTest, DescriptorsOfOtherNamesAreClosed) {
  SystemdPlace place;
  place.keep("index", Fd(file_of("i")));
  place.keep("not one of ours", Fd(file_of("x")));
  auto store = place.open();
  ASSERT_TRUE(store);
  EXPECT_EQ(texts_of((*store)->take_all()), (Texts{{"index", "i"}}));
  EXPECT_LT(::fcntl(3, F_GETFD), 0);
  EXPECT_LT(::fcntl(4, F_GETFD), 0);
  EXPECT_EQ(::getenv("LISTEN_FDS"), nullptr);
}

TEST(SystemdStoreTest, DescriptorsForAnotherProcessAreNotTaken) {
  SystemdPlace place;
  auto store = place.open();
  ASSERT_TRUE(store);
  place.keep("index", Fd(file_of("i")));
  place.pass(1);
  EXPECT_TRUE(texts_of((*store)->take_all()).empty());
  EXPECT_EQ(::close(3), 0);
}

// Systemd drops what is beyond the limit without an answer.
TEST(SystemdStoreTest, BeyondTheUnitsLimitAPutIsRefused) {
  ::setenv("FDSTORE", "3", 1);
  SystemdPlace place;
  place.keep("index", Fd(file_of("i")));
  auto store = place.open();
  ASSERT_TRUE(store);
  EXPECT_EQ(texts_of((*store)->take_all()), (Texts{{"index", "i"}}));
  EXPECT_TRUE(put_text(**store, "a", "a").ok());
  EXPECT_TRUE(put_text(**store, "b", "b").ok());
  const Status refused = put_text(**store, "c", "c");
  EXPECT_EQ(refused.code(), MC_NO_SPACE);
  EXPECT_THAT(std::string(refused.text()), HasSubstr("FileDescriptorStoreMax=3"));
  EXPECT_TRUE(put_text(**store, "a", "again").ok()) << "the new one replaces the old one";
  EXPECT_TRUE((*store)->drop("b").ok());
  EXPECT_TRUE(put_text(**store, "c", "c").ok());
  ::setenv("FDSTORE", "0", 1);
  EXPECT_EQ(make_systemd_store().error().code(), MC_UNSUPPORTED) << "a unit without a store";
  ::unsetenv("FDSTORE");
}

TEST(SystemdStoreTest, AManagerThatIsGoneIsAnError) {
  SystemdPlace place;
  auto store = place.open();
  ASSERT_TRUE(store);
  ::setenv("NOTIFY_SOCKET", (place.dir() + "/nobody").c_str(), 1);
  EXPECT_EQ(put_text(**store, "index", "i").code(), MC_AGENT_UNAVAILABLE);
  ::unsetenv("NOTIFY_SOCKET");
  EXPECT_EQ(put_text(**store, "index", "i").code(), MC_UNSUPPORTED);
}

}  // namespace
}  // namespace mc::agent
