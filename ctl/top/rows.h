// SPDX-License-Identifier: Apache-2.0
//
// The three tables of "mcctl top": columns, and the rows of a sample, sorted and filtered.
// Threads: any; pure functions. Owns nothing: rows point into the sample.
// Trusts: nothing; cells have no control characters.
#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <json/value.h>

namespace mc::ctl::top {

enum class Unit { kText, kId, kCount, kBytes, kBytesPerS, kShare, kDurationNs, kDurationS };

struct Column {
  std::string_view title;  // "PUTS/s"
  std::string_view field;  // of a row's JSON
  Unit unit;

  // The name for --sort: "puts/s".
  std::string key() const;
  bool is_number() const { return unit != Unit::kText; }
  // Texts and ids begin with the least value, figures with the largest one.
  bool is_ascending() const { return unit == Unit::kText || unit == Unit::kId; }
};

struct RowOrder {
  std::size_t column;
  bool reversed = false;
};

struct TopTable {
  std::string_view name;                 // of the sample's field: "namespaces"
  std::span<const Column> columns;       // the first one stays on the screen
  RowOrder order;                        // without a choice of the user
  std::array<std::string_view, 2> idle;  // a row without any of these figures is idle; empty: none

  std::optional<std::size_t> column_of(std::string_view key) const;
};

inline constexpr std::size_t kTables = 3;
extern const std::array<TopTable, kTables> kTopTables;  // namespaces, sessions, rails

// A choice of the user for all tables.
struct Arrangement {
  std::string sort;    // the key of a column; tables without the column keep their order
  std::string filter;  // rows must have this text; empty: all rows
};

RowOrder order_of(const TopTable& table, std::string_view sort);
// The reason why no table can be sorted so, with the nearest key; empty: a table has the column.
std::string sort_refusal(const std::string& sort);

// The rows of the table. filter: a text that some name or id of the row contains; the case of
// letters does not matter. Rows without a value come last. Equal rows stand in the order of the
// first column, so that they do not change places.
std::vector<const Json::Value*> rows_of(const Json::Value& sample, const TopTable& table,
                                        RowOrder order, std::string_view filter);

// "-" for an unknown value.
std::string cell_text(const Json::Value& row, const Column& column);

// The sample with its tables sorted and filtered, for --json.
Json::Value arranged(const Json::Value& sample, const Arrangement& arrangement);

}  // namespace mc::ctl::top
