// SPDX-License-Identifier: Apache-2.0
//
// A client and an agent with rings and doorbells. The product's shm functions are called in the
//   order of libmc/client/session/channel.cc, completion_queue.cc and agent/agent_loop.cc. Those
//   files need sockets and epoll; each function here names the function that it mirrors. No wait
//   has a timeout: a lost wake-up leaves a thread waiting for ever.
// Threads: those of the machine.
#pragma once

#include <vector>

#include "shm/doorbell.h"
#include "shm/ring.h"
#include "tests/model/machine.h"

namespace mc::model {

struct DoorbellFaults {
  bool no_second_look = false;  // the agent sleeps without a second read after the announcement
  bool no_second_look_client = false;  // the client sleeps without a second read
  bool bell_before_publish = false;    // the client reads the announcement before publishing
  bool wakes_active_only = false;      // the agent wakes only clients of polled channels
};

enum class ClientWaits { kInFutex, kInPoll };

// The shared part of a channel, and the private part of each side.
struct DoorbellChannel {
  DoorbellChannel(Machine& machine, const std::string& text) {
    header = shared<shm::ChannelHeader>();
    requests = shared<shm::RingSlot>(shm::kRingSlots);
    completions = shared<shm::RingSlot>(shm::kRingSlots);
    events = shared<std::uint64_t>(2);
    machine.name(&header->agent_asleep, 4, text + " agent_asleep");
    machine.name(&header->client_asleep, 4, text + " client_asleep");
    machine.name(requests, sizeof(shm::RingSlot) * shm::kRingSlots, text + " request");
    machine.name(completions, sizeof(shm::RingSlot) * shm::kRingSlots, text + " completion");
    machine.name(agent_event(), 8, "agent's eventfd");
    machine.name(client_event(), 8, text + " client's eventfd");
    client_requests = shm::RingProducer(requests, 1);
    client_completions = shm::RingConsumer(completions, 1);
    agent_requests = shm::RingConsumer(requests, 1);
    agent_completions = shm::RingProducer(completions, 1);
    // Session::open_channel: the agent starts asleep.
    shm::announce_agent_sleep(*header);
  }
  std::uint64_t* agent_event() const { return events; }
  std::uint64_t* client_event() const { return events + 1; }

  shm::ChannelHeader* header;
  shm::RingSlot* requests;
  shm::RingSlot* completions;
  std::uint64_t* events;
  // Private to the client.
  shm::RingProducer client_requests;
  shm::RingConsumer client_completions;
  std::uint64_t answered = 0;
  // Private to the agent.
  shm::RingConsumer agent_requests;
  shm::RingProducer agent_completions;
  bool active = false;
  bool needs_wake = false;
};

class DoorbellClient {
 public:
  DoorbellClient(DoorbellChannel* channel, std::uint64_t* agent_event, const DoorbellFaults& faults)
      : channel_(channel), agent_event_(agent_event), faults_(faults) {}

  // Channel::wake_ahead.
  void wake_ahead() {
    if (shm::claim_bell(*channel_->header)) signal_event(agent_event_, {"", "signal_eventfd", 0});
  }
  // Channel::publish.
  void publish(std::uint64_t number) {
    if (faults_.bell_before_publish && shm::agent_needs_bell(*channel_->header)) {
      signal_event(agent_event_, {"", "signal_eventfd", 0});
    }
    channel_->client_requests.publish({number});
    if (!faults_.bell_before_publish && shm::agent_needs_bell(*channel_->header)) {
      signal_event(agent_event_, {"", "signal_eventfd", 0});
    }
  }
  // Channel::wait after the spin; CompletionQueue's pump and the user's poll.
  void wait(std::uint64_t number, ClientWaits how) {
    for (;;) {
      reap();
      if (channel_->answered > number) return;
      shm::announce_client_sleep(*channel_->header, how == ClientWaits::kInFutex
                                                        ? shm::kClientInFutex
                                                        : shm::kClientInPoll);
      if (!faults_.no_second_look_client) reap();
      if (how == ClientWaits::kInFutex) {
        if (channel_->answered <= number) shm::wait_for_agent(*channel_->header, 0);
        shm::announce_client_awake(*channel_->header);
      } else if (channel_->answered <= number) {
        wait_event(channel_->client_event(), {"", "poll", 0});
      }
    }
  }

 private:
  void reap() {
    shm::RecordWords words;
    while (channel_->client_completions.poll(words)) {
      expect(words[0] == channel_->answered, "answers arrive once and in order");
      ++channel_->answered;
    }
  }

  DoorbellChannel* channel_;
  std::uint64_t* agent_event_;
  const DoorbellFaults& faults_;
};

class DoorbellAgent {
 public:
  DoorbellAgent(std::vector<DoorbellChannel*> channels, std::uint64_t* event,
                const DoorbellFaults& faults)
      : channels_(std::move(channels)), event_(event), faults_(faults) {}

  // A request waits for room in the pool: the agent answers after one more sleep.
  void answer_late() { answers_late_ = true; }
  void activate(DoorbellChannel& channel) {
    if (channel.active) return;
    channel.active = true;
    shm::announce_agent_awake(*channel.header);
  }

  // Agent::run, until the agent has answered `count` requests.
  void run(std::uint64_t total, bool demote_first) {
    while (served_ < total) {
      const bool worked = serve_rings();
      publish_wakes();
      if (demote_first) put_to_sleep(*channels_.front());
      demote_first = false;
      if (worked || !prepare_sleep()) continue;
      if (late_ != nullptr) {
        // epoll_wait returned at its timeout: Server::retry_waiting.
        complete(*late_);
        late_ = nullptr;
        publish_wakes();
        continue;
      }
      wait_event(event_, {"", "epoll_wait", 0});
      for (DoorbellChannel* channel : channels_) activate(*channel);
    }
  }

 private:
  bool serve_rings() {
    bool worked = false;
    shm::RecordWords words;
    for (DoorbellChannel* channel : channels_) {
      if (!channel->active) continue;
      while (channel->agent_requests.poll(words)) {
        worked = true;
        request_ = words[0];
        if (answers_late_) {
          late_ = channel;
        } else {
          complete(*channel);
        }
      }
    }
    return worked;
  }

  // Server::complete.
  void complete(DoorbellChannel& channel) {
    channel.agent_completions.publish({request_});
    channel.needs_wake = true;
    ++served_;
  }

  void publish_wakes() {
    bool fenced = false;
    for (DoorbellChannel* channel : channels_) {
      if (!channel->needs_wake || (faults_.wakes_active_only && !channel->active)) continue;
      channel->needs_wake = false;
      if (!fenced) shm::full_fence();
      fenced = true;
      if (shm::wake_client(*channel->header)) {
        signal_event(channel->client_event(), {"", "signal_eventfd", 0});
      }
    }
  }

  // Agent::put_idle_channels_to_sleep, with one idle channel.
  void put_to_sleep(DoorbellChannel& channel) {
    if (!channel.active) return;
    shm::announce_agent_sleep(*channel.header);
    shm::full_fence();
    if (faults_.no_second_look || !channel.agent_requests.has_record()) {
      channel.active = false;
    } else {
      shm::announce_agent_awake(*channel.header);
    }
  }

  bool prepare_sleep() {
    bool any = false;
    for (DoorbellChannel* channel : channels_) {
      if (!channel->active) continue;
      any = true;
      shm::announce_agent_sleep(*channel->header);
    }
    if (!any) return true;
    shm::full_fence();
    bool work = false;
    for (DoorbellChannel* channel : channels_) {
      if (channel->active && !faults_.no_second_look) work |= channel->agent_requests.has_record();
    }
    for (DoorbellChannel* channel : channels_) {
      if (!channel->active) continue;
      if (work) {
        shm::announce_agent_awake(*channel->header);
      } else {
        channel->active = false;
      }
    }
    return !work;
  }

  std::vector<DoorbellChannel*> channels_;
  std::uint64_t* event_;
  const DoorbellFaults& faults_;
  std::uint64_t served_ = 0;
  std::uint64_t request_ = 0;
  DoorbellChannel* late_ = nullptr;
  bool answers_late_ = false;
};

}  // namespace mc::model
