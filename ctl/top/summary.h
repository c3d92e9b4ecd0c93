// SPDX-License-Identifier: Apache-2.0
//
// The figures of the whole agent in a sample, as facts above the tables, and a sample as plain text.
// Threads: any; pure functions. Owns nothing.
// Trusts: nothing; facts have no control characters.
#pragma once

#include <string>
#include <vector>

#include <json/value.h>

#include "ctl/top/rows.h"

namespace mc::ctl::top {

struct Fact {
  std::string text;  // "puts 120/s, 1.50 GiB/s"
  bool is_trouble = false;
};

// Facts about the same subject, which stand on a line if the line is wide enough.
using Paragraph = std::vector<Fact>;

// The most important paragraph comes first.
std::vector<Paragraph> summary_of(const Json::Value& sample);

// The bar of a namespace's pool: "default  [######......]  45%  1.80 GiB of 4.00 GiB". name_width:
// the columns for the name. Bars are as wide as width allows.
std::string occupancy_bar(const Json::Value& row, std::size_t name_width, std::size_t width);

// The sample as plain text: the facts, then the tables. Without a filter the table of sessions has
// the first ten that are not idle.
std::string plain_text(const Json::Value& sample, const Arrangement& arrangement);

}  // namespace mc::ctl::top
