// SPDX-License-Identifier: Apache-2.0
#include "tests/model/fiber.h"

#include <ucontext.h>

#include <cstdint>
#include <cstdlib>

namespace mc::model {

namespace {

constexpr std::size_t kStackBytes = 256u << 10;

}  // namespace

Fiber::Fiber() : stack_(new std::byte[kStackBytes]) {}

void Fiber::start(std::function<void()> body) {
  body_ = std::move(body);
  entered_ = false;
  finished_ = false;
}

void Fiber::resume() {
  if (_setjmp(outside_) != 0) return;
  if (entered_) _longjmp(inside_, 1);
  entered_ = true;
  ucontext_t context;
  ::getcontext(&context);
  context.uc_stack.ss_sp = stack_.get();
  context.uc_stack.ss_size = kStackBytes;
  context.uc_link = nullptr;
  // makecontext passes only ints.
  const auto self = reinterpret_cast<std::uintptr_t>(this);
  ::makecontext(&context, reinterpret_cast<void (*)()>(&Fiber::enter), 2,
                static_cast<unsigned>(self >> 32), static_cast<unsigned>(self));
  ::setcontext(&context);
  std::abort();
}

void Fiber::enter(unsigned high, unsigned low) {
  reinterpret_cast<Fiber*>((static_cast<std::uintptr_t>(high) << 32) | low)->run();
}

void Fiber::run() {
  body_();
  finished_ = true;
  _longjmp(outside_, 1);
}

void Fiber::pause() {
  if (_setjmp(inside_) == 0) _longjmp(outside_, 1);
}

}  // namespace mc::model
