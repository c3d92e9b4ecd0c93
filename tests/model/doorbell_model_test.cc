// SPDX-License-Identifier: Apache-2.0
#include "tests/model/doorbell_world.h"
#include "tests/model/scenario.h"

namespace mc::model {
namespace {

struct Setting {
  std::uint64_t requests = 2;
  bool client_waits = false;
  ClientWaits how = ClientWaits::kInFutex;
  bool busy_neighbour = false;  // a second channel with a request from the start
  bool agent_looks = true;      // the agent polls from the start
  bool demote_first = false;
  bool answer_late = false;
  bool client_dies = false;
  bool wakes_ahead = false;
  DoorbellFaults faults;
};

struct DoorbellWorld {
  DoorbellWorld(Machine& machine, const Setting& chosen) : setting(chosen) {
    std::vector<DoorbellChannel*> list;
    for (unsigned i = 0; i < (setting.busy_neighbour ? 2u : 1u); ++i) {
      channels.push_back(std::make_unique<DoorbellChannel>(machine, i == 0 ? "" : "neighbour's "));
      list.push_back(channels.back().get());
    }
    if (setting.busy_neighbour) list.back()->client_requests.publish({0});
    event = list.front()->agent_event();
    agent = std::make_unique<DoorbellAgent>(list, event, setting.faults);
    if (setting.answer_late) agent->answer_late();
    if (!setting.agent_looks) return;
    for (DoorbellChannel* channel : list) agent->activate(*channel);
  }

  void run_client() {
    DoorbellClient client(channels.front().get(), event, setting.faults);
    for (std::uint64_t i = 0; i < setting.requests; ++i) {
      if (setting.wakes_ahead) client.wake_ahead();
      client.publish(i);
      if (setting.client_waits) client.wait(i, setting.how);
    }
  }

  Setting setting;
  std::vector<std::unique_ptr<DoorbellChannel>> channels;
  std::uint64_t* event;
  std::unique_ptr<DoorbellAgent> agent;
};

Build doorbell(Setting setting) {
  return [setting](Machine& machine) {
    auto world = std::make_shared<DoorbellWorld>(machine, setting);
    machine.thread("client", [world] { world->run_client(); });
    if (setting.client_dies) machine.may_die(0);
    machine.thread("agent", [world] {
      const Setting& chosen = world->setting;
      world->agent->run(chosen.requests + (chosen.busy_neighbour ? 1 : 0), chosen.demote_first);
    });
  };
}

Setting talk(ClientWaits how, std::uint64_t requests = 1) {
  Setting setting;
  setting.client_waits = true;
  setting.how = how;
  setting.requests = requests;
  return setting;
}

TEST(DoorbellModel, AnAgentGoingToSleepMissesNoRequest) {
  expect_holds(doorbell({.requests = 2, .faults = {}}));
  expect_holds(doorbell({.requests = 2, .agent_looks = false, .faults = {}}));
}

TEST(DoorbellModel, AClientInItsFutexMissesNoAnswer) {
  expect_holds(doorbell(talk(ClientWaits::kInFutex)));
}

TEST(DoorbellModel, AClientInPollMissesNoAnswer) {
  expect_holds(doorbell(talk(ClientWaits::kInPoll)));
}

TEST(DoorbellModel, BothSidesGoToSleepAgainAndAgain) {
  for (const ClientWaits how : {ClientWaits::kInFutex, ClientWaits::kInPoll}) {
    Setting setting = talk(how, 2);
    // Takes half a minute if the agent is awake at first.
    setting.agent_looks = long_form();
    expect_holds(Memory::kTotalStoreOrder, doorbell(setting));
  }
}

TEST(DoorbellModel, AnIdleChannelIsDemotedWithoutLosingItsRequest) {
  Setting setting{.requests = 1, .busy_neighbour = true, .demote_first = true, .faults = {}};
  expect_holds(doorbell(setting));
}

TEST(DoorbellModel, AnAnswerAfterTheChannelWasDemotedWakesItsClient) {
  for (const ClientWaits how : {ClientWaits::kInFutex, ClientWaits::kInPoll}) {
    Setting setting = talk(how);
    setting.answer_late = true;
    expect_holds(doorbell(setting));
  }
}

TEST(DoorbellModel, ABellAheadOfTheRequestLosesNeither) {
  Setting setting = talk(ClientWaits::kInFutex);
  setting.wakes_ahead = true;
  for (const bool looks : {false, true}) {
    setting.agent_looks = looks;
    expect_holds(doorbell(setting));
  }
  setting = {.requests = 1, .busy_neighbour = true, .demote_first = true, .faults = {}};
  setting.wakes_ahead = true;
  expect_holds(doorbell(setting));
}

TEST(DoorbellModel, AClientMayDieAtAnyStep) {
  Setting setting = talk(ClientWaits::kInFutex, long_form() ? 2 : 1);
  setting.busy_neighbour = !long_form();
  setting.agent_looks = !long_form();
  setting.client_dies = true;
  expect_holds(Memory::kTotalStoreOrder, doorbell(setting));
}

TEST(DoorbellMutant, AnAgentWithoutFenceIsFound) {
  expect_found(Memory::kTotalStoreOrder, doorbell({.requests = 1, .faults = {}}),
               {{"prepare_sleep", Kind::kFence, Action::kSkip}});
}

TEST(DoorbellMutant, ADemotionWithoutFenceIsFound) {
  expect_found(Memory::kTotalStoreOrder,
               doorbell({.requests = 1, .demote_first = true, .faults = {}}),
               {{"put_to_sleep", Kind::kFence, Action::kSkip}});
}

TEST(DoorbellMutant, AClientWithoutFenceIsFound) {
  expect_found(Memory::kTotalStoreOrder, doorbell({.requests = 1, .faults = {}}),
               {{"agent_needs_bell", Kind::kFence, Action::kSkip}});
}

TEST(DoorbellMutant, AnAgentThatDoesNotLookAgainIsFound) {
  expect_found(Memory::kTotalStoreOrder,
               doorbell({.requests = 1, .faults = {.no_second_look = true}}));
}

TEST(DoorbellMutant, AClientThatRingsBeforeItPublishesIsFound) {
  expect_found(Memory::kTotalStoreOrder,
               doorbell({.requests = 1, .faults = {.bell_before_publish = true}}));
}

TEST(DoorbellMutant, AClientWithoutFullFenceIsFound) {
  for (const ClientWaits how : {ClientWaits::kInFutex, ClientWaits::kInPoll}) {
    expect_found(Memory::kTotalStoreOrder, doorbell(talk(how)),
                 {{"announce_client_sleep", Kind::kFence, Action::kSkip}});
  }
}

TEST(DoorbellMutant, AnAgentThatWakesWithoutFullFenceIsFound) {
  for (const ClientWaits how : {ClientWaits::kInFutex, ClientWaits::kInPoll}) {
    expect_found(Memory::kTotalStoreOrder, doorbell(talk(how)),
                 {{"publish_wakes", Kind::kFence, Action::kSkip}});
  }
}

TEST(DoorbellMutant, AClientThatDoesNotLookAgainIsFound) {
  Setting setting = talk(ClientWaits::kInPoll);
  setting.faults.no_second_look_client = true;
  expect_found(Memory::kTotalStoreOrder, doorbell(setting));
  setting.how = ClientWaits::kInFutex;
  expect_found(Memory::kTotalStoreOrder, doorbell(setting));
}

TEST(DoorbellMutant, AWakeThatLeavesTheAnnouncementIsFound) {
  expect_found(Memory::kTotalStoreOrder, doorbell(talk(ClientWaits::kInFutex)),
               {{"wake_client", Kind::kLoad, Action::kZero}});
}

TEST(DoorbellMutant, AnAgentThatForgetsDemotedChannelsIsFound) {
  Setting setting = talk(ClientWaits::kInFutex);
  setting.answer_late = true;
  setting.faults.wakes_active_only = true;
  expect_found(Memory::kTotalStoreOrder, doorbell(setting));
}

}  // namespace
}  // namespace mc::model
