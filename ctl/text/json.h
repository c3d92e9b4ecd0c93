// SPDX-License-Identifier: Apache-2.0
//
// JSON that is read without trust and printed for programs.
// Threads: any; pure functions, except the printing. Owns nothing.
// Trusts: nothing; a field that is missing or of another type reads as zero, empty or false.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include <json/value.h>

namespace mc::ctl {

const Json::Value& field(const Json::Value& object, std::string_view name);  // null when missing
std::uint64_t number_field(const Json::Value& object, std::string_view name);
std::string bytes_field(const Json::Value& object, std::string_view name);  // "1.50 KiB"
std::string text_field(const Json::Value& object, std::string_view name);   // numbers as digits
bool flag_field(const Json::Value& object, std::string_view name);
const Json::Value& array_field(const Json::Value& object, std::string_view name);
inline Json::Value u64(std::uint64_t value) { return Json::Value(Json::UInt64{value}); }

// The value on one line, without a newline; numbers have this many significant digits.
std::string json_line(const Json::Value& value, unsigned digits);
// To standard output, with a newline: indented, or on one line for JSON lines.
void print_json(const Json::Value& value);
void print_json_line(const Json::Value& value);

}  // namespace mc::ctl
