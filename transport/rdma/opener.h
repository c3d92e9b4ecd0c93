// SPDX-License-Identifier: Apache-2.0
//
// Workers that take queue pairs to "ready to receive". For this the kernel resolves the
//   neighbour's address, which takes a second if the neighbour does not answer.
//
//     loop: open(pair, transition, done) ─► thread: transition ─► loop: done(pair, status)
//
// Threads: as Workers.
#pragma once

#include <functional>
#include <memory>
#include <utility>

#include "transport/flow/workers.h"
#include "transport/rdma/queue_pair.h"

namespace mc::transport::rdma {

class Opener : public Workers {
 public:
  using Transition = std::function<Status(QueuePair&)>;
  using Done = std::function<void(QueuePair, Status)>;
  using Workers::Workers;

  void open(QueuePair pair, Transition transition, Done done) {
    struct Opening {
      QueuePair pair;
      Status status;
    };
    const Device& device = pair.device();
    const auto opening = std::make_shared<Opening>(Opening{std::move(pair), {}});
    run(
        &device,
        [opening, transition = std::move(transition)] {
          opening->status = transition(opening->pair);
        },
        [opening, done = std::move(done)] {
          done(std::move(opening->pair), std::move(opening->status));
        });
  }
};

}  // namespace mc::transport::rdma
