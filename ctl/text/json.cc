// SPDX-License-Identifier: Apache-2.0
#include "ctl/text/json.h"

#include <cstdio>

#include <fmt/core.h>
#include <json/writer.h>

#include "ctl/text/size.h"

namespace mc::ctl {
namespace {

std::string write_json(const Json::Value& value, const char* indentation) {
  Json::StreamWriterBuilder builder;
  builder["indentation"] = indentation;
  // Pure ASCII: a text that is not UTF-8 would make a document that strict readers refuse.
  builder["enableYAMLCompatibility"] = true;  // "name": value, not "name" : value
  return Json::writeString(builder, value);
}

}  // namespace

const Json::Value& field(const Json::Value& object, std::string_view name) {
  static const Json::Value kNull;
  if (!object.isObject()) return kNull;
  const Json::Value* found = object.find(name.data(), name.data() + name.size());
  return found != nullptr ? *found : kNull;
}

std::uint64_t number_field(const Json::Value& object, std::string_view name) {
  const Json::Value& value = field(object, name);
  if (value.isUInt64()) return value.asUInt64();
  // isUInt64() is false for 3.7; a duration may well be one.
  if (value.isDouble() && value.asDouble() > 0 && value.asDouble() < 9e18) {
    return static_cast<std::uint64_t>(value.asDouble());
  }
  return 0;
}

std::string text_field(const Json::Value& object, std::string_view name) {
  const Json::Value& value = field(object, name);
  if (value.isConvertibleTo(Json::stringValue)) return value.asString();
  return {};
}

bool flag_field(const Json::Value& object, std::string_view name) {
  const Json::Value& value = field(object, name);
  if (value.isBool()) return value.asBool();
  return value.isUInt64() && value.asUInt64() != 0;
}

const Json::Value& array_field(const Json::Value& object, std::string_view name) {
  static const Json::Value kEmpty(Json::arrayValue);
  const Json::Value& value = field(object, name);
  return value.isArray() ? value : kEmpty;
}

std::string bytes_field(const Json::Value& object, std::string_view name) {
  return format_bytes(number_field(object, name));
}

std::string json_line(const Json::Value& value, unsigned digits) {
  Json::StreamWriterBuilder builder;
  builder["indentation"] = "";
  builder["precision"] = digits;
  return Json::writeString(builder, value);
}

void print_json(const Json::Value& value) { fmt::print("{}\n", write_json(value, "  ")); }

void print_json_line(const Json::Value& value) { fmt::print("{}\n", write_json(value, "")); }

}  // namespace mc::ctl
