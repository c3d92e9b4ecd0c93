// SPDX-License-Identifier: Apache-2.0
#include "ctl/top/rows.h"

#include <algorithm>
#include <utility>

#include <fmt/core.h>

#include "ctl/text/json.h"
#include "ctl/text/size.h"
#include "ctl/text/table.h"
#include "libmc/options/nearest.h"

namespace mc::ctl::top {
namespace {

constexpr Column kNamespaceColumns[] = {
    {"NAMESPACE", "name", Unit::kText},
    {"USED%", "used_share", Unit::kShare},
    {"USED", "used_bytes", Unit::kBytes},
    {"POOL", "pool_bytes", Unit::kBytes},
    {"OBJECTS", "objects", Unit::kCount},
    {"GETS/s", "gets_per_s", Unit::kCount},
    {"HITS%", "hit_ratio", Unit::kShare},
    {"GET BYTES/s", "get_bytes_per_s", Unit::kBytes},
    {"PUTS/s", "puts_per_s", Unit::kCount},
    {"PUT BYTES/s", "put_bytes_per_s", Unit::kBytes},
    {"EVICTED/s", "evictions_per_s", Unit::kCount},
    {"REMOVED/s", "removes_per_s", Unit::kCount},
    {"NO SPACE/s", "no_space_per_s", Unit::kCount},
};

constexpr Column kSessionColumns[] = {
    {"PID", "pid", Unit::kId},
    {"LABEL", "label", Unit::kText},
    {"NAMESPACE", "namespace", Unit::kText},
    {"REQUESTS/s", "requests_per_s", Unit::kCount},
    {"PINNED", "pinned_objects", Unit::kCount},
    {"RESERVED", "reserved_bytes", Unit::kBytes},
    {"STAGING", "staging_bytes", Unit::kBytes},
    {"CHANNELS", "channels", Unit::kCount},
    {"AGE", "age_s", Unit::kDurationS},
    {"STATE", "state", Unit::kText},
    {"UID", "uid", Unit::kId},
    {"SESSION", "id", Unit::kId},
};

constexpr Column kRailColumns[] = {
    {"PEER", "peer", Unit::kText},
    {"BY", "transport", Unit::kText},
    {"RAIL", "name", Unit::kText},
    {"HEALTH", "health", Unit::kText},
    {"LOAD", "load", Unit::kShare},
    {"NOW", "bytes_per_s", Unit::kBytesPerS},
    {"MEASURED", "bandwidth_bytes_per_s", Unit::kBytesPerS},
    {"LATENCY", "latency_ns", Unit::kDurationNs},
    {"FAILURES", "failures", Unit::kCount},
    {"FAILURES/s", "failures_per_s", Unit::kCount},
    {"SENT AGAIN", "taken_back_slices", Unit::kCount},
};

char lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

std::string lower_case(std::string_view text) {
  std::string out(text);
  std::ranges::transform(out, out.begin(), lower);
  return out;
}

bool matches(const Json::Value& row, const TopTable& table, const std::string& wanted) {
  return std::ranges::any_of(table.columns, [&](const Column& column) {
    const bool names = column.unit == Unit::kText || column.unit == Unit::kId;
    return names && lower_case(text_field(row, column.field)).find(wanted) != std::string::npos;
  });
}

double figure(const Json::Value& value) { return value.isNumeric() ? value.asDouble() : 0; }

// Negative: a comes first.
int compared(const Json::Value& a, const Json::Value& b, const Column& column) {
  if (column.is_number()) {
    const double x = figure(field(a, column.field));
    const double y = figure(field(b, column.field));
    return x < y ? -1 : x > y ? 1 : 0;
  }
  return text_field(a, column.field).compare(text_field(b, column.field));
}

}  // namespace

const std::array<TopTable, kTables> kTopTables{{
    {"namespaces", kNamespaceColumns, {0}, {}},
    {"sessions", kSessionColumns, {3}, {"requests_per_s", "pinned_objects"}},
    {"rails", kRailColumns, {0}, {}},
}};

std::string Column::key() const {
  std::string out = lower_case(title);
  std::ranges::replace(out, ' ', '-');
  return out;
}

std::optional<std::size_t> TopTable::column_of(std::string_view key) const {
  for (std::size_t i = 0; i < columns.size(); ++i) {
    if (columns[i].key() == key) return i;
  }
  return std::nullopt;
}

RowOrder order_of(const TopTable& table, std::string_view sort) {
  const auto column = table.column_of(sort);
  return column ? RowOrder{*column} : table.order;
}

std::string sort_refusal(const std::string& sort) {
  std::vector<std::string> keys;
  for (const TopTable& table : kTopTables) {
    if (table.column_of(sort)) return {};
    for (const Column& column : table.columns) keys.push_back(column.key());
  }
  const std::string meant = options::nearest(sort, keys);
  return fmt::format("no table has a column '{}'{}", printable(sort),
                     meant.empty() ? "" : ", but one has '" + meant + "'");
}

std::vector<const Json::Value*> rows_of(const Json::Value& sample, const TopTable& table,
                                        RowOrder order, std::string_view filter) {
  const std::string wanted = lower_case(filter);
  std::vector<const Json::Value*> rows;
  for (const Json::Value& row : array_field(sample, table.name)) {
    if (matches(row, table, wanted)) rows.push_back(&row);
  }
  const Column& by = table.columns[order.column];
  const Column& first = table.columns.front();
  const bool ascending = by.is_ascending() != order.reversed;
  std::ranges::stable_sort(rows, [&](const Json::Value* a, const Json::Value* b) {
    const bool unknown_a = field(*a, by.field).isNull();
    const bool unknown_b = field(*b, by.field).isNull();
    if (unknown_a != unknown_b) return unknown_b;
    if (const int order_by = compared(*a, *b, by); order_by != 0) {
      return ascending ? order_by < 0 : order_by > 0;
    }
    return compared(*a, *b, first) < 0;
  });
  return rows;
}

std::string cell_text(const Json::Value& row, const Column& column) {
  const Json::Value& value = field(row, column.field);
  if (value.isNull()) return "-";
  switch (column.unit) {
    case Unit::kText:
    case Unit::kId:
      return printable(text_field(row, column.field));
    case Unit::kCount:
      return format_count(number_field(row, column.field));
    case Unit::kBytes:
      return bytes_field(row, column.field);
    case Unit::kBytesPerS:
      return bytes_field(row, column.field) + "/s";
    case Unit::kShare:
      return fmt::format("{:.0f}%", 100 * figure(value));
    case Unit::kDurationNs:
      return format_duration_ns(figure(value));
    case Unit::kDurationS:
      return format_duration_ns(figure(value) * 1e9);
  }
  return {};
}

Json::Value arranged(const Json::Value& sample, const Arrangement& arrangement) {
  Json::Value out = sample;
  for (const TopTable& table : kTopTables) {
    const std::string name(table.name);
    if (!sample.isMember(name)) continue;
    out[name] = Json::Value(Json::arrayValue);
    const RowOrder order = order_of(table, arrangement.sort);
    for (const Json::Value* row : rows_of(sample, table, order, arrangement.filter)) {
      out[name].append(*row);
    }
  }
  return out;
}

}  // namespace mc::ctl::top
