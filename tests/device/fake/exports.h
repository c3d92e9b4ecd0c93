// SPDX-License-Identifier: Apache-2.0
//
// State of the exported functions that tests ask for (fake_driver.h).
// Threads: any.
#pragma once

#include <cstddef>
#include <cstdint>

namespace mc::fake {

std::uint64_t count_pageable_copies();  // copies.cc
std::size_t count_handles();            // memory_calls.cc: handles of physical memory
std::size_t count_modules();            // kernels.cc
const void* kernel_image();             // kernels.cc: an image of the kernels of libmc/device

}  // namespace mc::fake
