// SPDX-License-Identifier: Apache-2.0
//
// The signatures of the driver's functions as a declaration gives them: of the fake driver (fake/abi.h),
//   or of CUDA's header, where a toolkit is installed.
#pragma once

#include <map>
#include <string>
#include <type_traits>

namespace mc::device::testing {

// A letter and a size for each parameter: p8 is a pointer or a handle, i4 an integer or an enum, and
// s64 a struct by value.
template <typename Type>
std::string word_of() {
  const char kind = std::is_pointer_v<Type>                            ? 'p'
                    : std::is_integral_v<Type> || std::is_enum_v<Type> ? 'i'
                                                                       : 's';
  constexpr std::size_t kBytes = sizeof(Type);  // NOLINT(bugprone-sizeof-expression): a pointer's
  return kind + std::to_string(kBytes);
}

template <typename Function>
struct Signature;
template <typename Result, typename... Parameters>
struct Signature<Result (*)(Parameters...)> {
  static std::string text() {
    return word_of<Result>() + ((" " + word_of<Parameters>()) + ... + "");
  }
};

using Signatures = std::map<std::string, std::string>;
Signatures fake_signatures();
// Empty: this machine has no CUDA header.
Signatures cuda_signatures();

// An item of the list for driver_functions.inc.
#define MC_FUNCTION(name) {#name, Signature<decltype(&::name)>::text()},

}  // namespace mc::device::testing
