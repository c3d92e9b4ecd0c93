// SPDX-License-Identifier: Apache-2.0
//
// Far more requests that wait for room than a client may have. At most one ring's worth waits, the
// agent refuses the others at once, and other clients notice nothing.
#include <map>

#include "attack_test.h"

namespace mc::hostile {

namespace {

constexpr std::uint64_t kObjectBytes = 16 * 1024;
constexpr std::uint64_t kPoolBytes = 1 << 20;
constexpr std::uint64_t kNoopId = 1u << 30;
constexpr std::uint64_t kForEver = ~std::uint64_t{0};

// The honest client works in the default namespace. A neighbour of the attacker has filled the
// other namespace with objects that cannot be evicted.
class Waiting : public AttackTest {
 protected:
  void SetUp() override {
    Json::Value order;
    order["verb"] = "create_namespace";
    order["name"] = "crowded";
    order["pool_bytes"] = Json::UInt64{kPoolBytes};
    ASSERT_FALSE(agent_.order(order).isMember("error"));
    mc_open_options options = MC_OPEN_OPTIONS_INIT;
    const std::string socket = socket_path();
    options.agent = socket.c_str();
    options.name_space = "crowded";
    options.timeout_ns = kWatchdogNs;
    ASSERT_EQ(mc_open(&options, &neighbour_), MC_OK) << mc_last_error();
    for (std::uint64_t i = 0; i < kPoolBytes / kObjectBytes; ++i) {
      ASSERT_EQ(put("pinned-" + std::to_string(i)), MC_OK) << mc_last_error();
    }
    AttackTest::SetUp();
  }
  void TearDown() override {
    // The attacker and the attacker's requests are gone.
    EXPECT_EQ(remove("pinned-1"), MC_OK);
    EXPECT_EQ(put("late"), MC_OK) << mc_last_error();
    AttackTest::TearDown();
    mc_close(neighbour_);
  }

  mc_status put(const std::string& key) {
    mc_put_options options = MC_PUT_OPTIONS_INIT;
    options.pin = MC_PIN_HARD;
    const std::vector<char> value(kObjectBytes, 'p');
    return mc_put(neighbour_, {key.data(), key.size()}, {value.data(), value.size()}, &options);
  }
  mc_status remove(const std::string& key) {
    return mc_remove(neighbour_, {key.data(), key.size()}, 0);
  }

  // Sends the request under this id. Returns after the agent has seen it: the agent has answered a
  // later request in the ring. Records answers to other requests meanwhile.
  void send(HostileSession& session, shm::Request request, std::uint64_t id) {
    request.request_id = id;
    session.publish(shm::to_words(request));
    shm::Request noop{};
    noop.request_id = kNoopId + id;
    session.publish(shm::to_words(noop));
    for (auto answer = next(session); answer && answer->request_id != noop.request_id;) {
      answer = next(session);
    }
  }
  std::optional<shm::Completion> next(HostileSession& session) {
    const auto answer = session.answer();
    EXPECT_TRUE(answer.has_value());
    if (answer && answer->request_id < kNoopId) answers_[answer->request_id].push_back(*answer);
    return answer;
  }
  // The answer to a request; nullopt without an answer.
  std::optional<int> status_of(std::uint64_t id) const {
    const auto found = answers_.find(id);
    if (found == answers_.end()) return std::nullopt;
    EXPECT_EQ(found->second.size(), 1u) << "request " << id;
    return found->second.front().status;
  }

  void attack(HostileSession& session, const shm::Request& request) {
    const std::uint64_t total = is_long_run() ? 100'000 : 2 * shm::kRingSlots;
    for (std::uint64_t id = 1; id <= total; ++id) {
      send(session, request, id);
      ASSERT_FALSE(HasFailure()) << "request " << id;
    }
    for (std::uint64_t id = 1; id <= total; ++id) {
      const auto status = status_of(id);
      ASSERT_EQ(status.has_value(), id > shm::kRingSlots) << "request " << id;
      ASSERT_EQ(status.value_or(MC_BUSY), MC_BUSY) << "request " << id;
    }
    EXPECT_TRUE(honest_->works_on(50)) << honest_->trouble();
    // Room for one object: the first waiting request gets it, and another request may wait.
    EXPECT_EQ(remove("pinned-0"), MC_OK);
    while (!HasFailure() && !status_of(1)) next(session);
    EXPECT_EQ(status_of(1), MC_OK);
    send(session, request, total + 1);
    EXPECT_EQ(status_of(total + 1), std::nullopt);
    send(session, request, total + 2);
    EXPECT_EQ(status_of(total + 2), MC_BUSY);
    EXPECT_EQ(status_of(2), std::nullopt);
  }

  mc_client* neighbour_ = nullptr;
  std::map<std::uint64_t, std::vector<shm::Completion>> answers_;
};

TEST_F(Waiting, ReservationsBeyondARingsWorthAreBusy) {
  HostileSession session(socket_path(), "crowded");
  ASSERT_TRUE(session.open() && session.open_channel());
  shm::Request request{};
  request.op = static_cast<std::uint16_t>(shm::Op::kReserve);
  request.item_count = 1;
  request.argument_bytes = sizeof(shm::ReservedItem);
  request.deadline_ns = kForEver;
  request.a = kObjectBytes;
  attack(session, request);
}

TEST_F(Waiting, StagedPutsBeyondARingsWorthAreBusy) {
  HostileSession session(socket_path(), "crowded");
  ASSERT_TRUE(session.open() && session.open_channel() && session.open_staging(kObjectBytes));
  shm::PutItem item{};
  item.length = kObjectBytes;
  // The earlier client keeps its place.
  item.pin = MC_PIN_HARD;
  shm::Request request = session.items(shm::Op::kPutStaged, {{item, "flood"}});
  request.flags = shm::kFlagUpsert;
  request.deadline_ns = kForEver;
  attack(session, request);
}

}  // namespace

}  // namespace mc::hostile
