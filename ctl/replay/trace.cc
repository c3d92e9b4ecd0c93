// SPDX-License-Identifier: Apache-2.0
#include "ctl/replay/trace.h"

#include <json/reader.h>

#include <cerrno>
#include <fstream>
#include <memory>
#include <system_error>
#include <unordered_map>
#include <unordered_set>
#include <utility>

namespace mc::ctl {
namespace {

constexpr std::size_t kMaxJsonDepth = 4;  // an object holding one list needs two
constexpr std::string_view kShapeRemedy =
    R"(; a line looks like {"timestamp": 0, "input_length": 600, "output_length": 9, )"
    R"("hash_ids": [0, 1]})";

enum class LineEnd { kLine, kEndOfFile, kTooLong };

// Unlike std::getline, limits the length of a line in memory.
LineEnd read_line(std::istream& in, std::size_t max_bytes, std::string& line) {
  line.clear();
  std::streambuf* bytes = in.rdbuf();
  for (int c = bytes->sbumpc(); c != std::char_traits<char>::eof(); c = bytes->sbumpc()) {
    if (c == '\n') return LineEnd::kLine;
    if (line.size() == max_bytes) return LineEnd::kTooLong;
    line.push_back(static_cast<char>(c));
  }
  return line.empty() ? LineEnd::kEndOfFile : LineEnd::kLine;
}

// The message of jsoncpp, which has several lines, as one line.
std::string on_one_line(const std::string& text) {
  std::string flat;
  for (const char c : text) {
    if (c != '\n') {
      flat.push_back(c);
    } else if (!flat.empty() && flat.back() != ' ') {
      flat.push_back(' ');
    }
  }
  while (!flat.empty() && flat.back() == ' ') flat.pop_back();
  return flat;
}

class TraceReader {
 public:
  TraceReader(std::string_view source, const TraceLimits& limits)
      : source_(source), limits_(limits) {
    Json::CharReaderBuilder builder;
    Json::CharReaderBuilder::strictMode(&builder.settings_);
    builder["stackLimit"] = static_cast<Json::UInt>(kMaxJsonDepth);
    json_.reset(builder.newCharReader());
  }

  tl::expected<Trace, std::string> read(std::istream& in) {
    std::string line;
    for (;;) {
      ++line_number_;
      const LineEnd end = read_line(in, limits_.line_bytes, line);
      if (end == LineEnd::kTooLong) {
        return error("is longer than " + std::to_string(limits_.line_bytes) +
                     " bytes; put one request on each line");
      }
      if (end == LineEnd::kEndOfFile) break;
      if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
      if (auto problem = add_line(line); !problem.empty()) return error(problem);
    }
    if (trace_.requests.empty()) {
      return tl::make_unexpected(source_ +
                                 ": holds no request; give a trace with one JSON object "
                                 "a line");
    }
    trace_.block_count = numbers_.size();
    return std::move(trace_);
  }

 private:
  tl::unexpected<std::string> error(const std::string& problem) const {
    return tl::make_unexpected(source_ + ": line " + std::to_string(line_number_) + " " + problem);
  }

  // The problem, or an empty string. jsoncpp throws if a document is nested too deeply; the
  // exception does not leave this function.
  std::string add_line(const std::string& line) {
    Json::Value value;
    std::string parser_errors;
    try {
      if (!json_->parse(line.data(), line.data() + line.size(), &value, &parser_errors)) {
        return "is not valid JSON (" + on_one_line(parser_errors) +
               "); is the file cut short? Fetch it again or delete the line";
      }
    } catch (const Json::Exception& failure) {
      return "is not valid JSON (" + on_one_line(failure.what()) + ")" + std::string(kShapeRemedy);
    }
    if (!value.isObject()) return "is not a JSON object" + std::string(kShapeRemedy);
    TraceRequest request;
    std::string problem = read_count(value, "timestamp", request.timestamp_ms);
    if (problem.empty()) problem = read_count(value, "input_length", request.input_tokens);
    if (problem.empty()) problem = read_count(value, "output_length", request.output_tokens);
    if (problem.empty()) problem = read_blocks(value, request.blocks);
    if (problem.empty()) trace_.requests.push_back(std::move(request));
    return problem;
  }

  std::string read_count(const Json::Value& line, const char* field, std::uint64_t& out) const {
    const Json::Value& value = line[field];
    if (value.isNull()) {
      return "has no \"" + std::string(field) + "\"" + std::string(kShapeRemedy);
    }
    if (!is_bounded(value)) {
      return "has a \"" + std::string(field) + "\" that is not a whole number from 0 to " +
             std::to_string(limits_.block_id) + std::string(kShapeRemedy);
    }
    out = value.asUInt64();
    return {};
  }

  std::string read_blocks(const Json::Value& line, std::vector<std::uint32_t>& out) {
    const Json::Value& ids = line["hash_ids"];
    if (ids.isNull()) return "has no \"hash_ids\"" + std::string(kShapeRemedy);
    if (!ids.isArray()) return "has \"hash_ids\" that are not a list" + std::string(kShapeRemedy);
    if (ids.size() > limits_.blocks_per_request) {
      return "has " + std::to_string(ids.size()) + " hash_ids, more than " +
             std::to_string(limits_.blocks_per_request) +
             "; split the request or use larger blocks";
    }
    trace_.reference_count += ids.size();
    if (trace_.reference_count > limits_.block_references) {
      return "brings the trace over " + std::to_string(limits_.block_references) +
             " block references; cut the file here";
    }
    out.reserve(ids.size());
    std::unordered_set<std::uint64_t> seen;
    for (const Json::Value& id : ids) {
      const std::string where = "hash_ids[" + std::to_string(out.size()) + "]";
      if (!is_bounded(id)) {
        return "has a " + where + " that is not a whole number from 0 to " +
               std::to_string(limits_.block_id) + "; number the blocks within that range";
      }
      // A prefix hash covers all earlier blocks, so a chain that repeats a hash is no prefix chain.
      if (!seen.insert(id.asUInt64()).second) {
        return "repeats block " + std::to_string(id.asUInt64()) + " at " + where +
               "; hash each block together with the blocks before it";
      }
      const auto next = static_cast<std::uint32_t>(numbers_.size());
      out.push_back(numbers_.emplace(id.asUInt64(), next).first->second);
    }
    return {};
  }

  [[nodiscard]] bool is_bounded(const Json::Value& value) const {
    // isUInt64 also accepts a real number without a fraction, such as 1e3; a trace has no such
    // number.
    const bool whole = value.type() == Json::intValue || value.type() == Json::uintValue;
    return whole && value.isUInt64() && value.asUInt64() <= limits_.block_id;
  }

  std::string source_;
  TraceLimits limits_;
  std::unique_ptr<Json::CharReader> json_;
  std::unordered_map<std::uint64_t, std::uint32_t> numbers_;
  std::size_t line_number_ = 0;
  Trace trace_;
};

}  // namespace

tl::expected<Trace, std::string> read_trace(std::istream& in, std::string_view source,
                                            const TraceLimits& limits) {
  try {
    return TraceReader(source, limits).read(in);
  } catch (
      const std::ios_base::failure& failure) {  // a file buffer reports a failing read this way
    return tl::make_unexpected(std::string(source) + ": reading failed (" + failure.what() +
                               "); give a readable file");
  }
}

tl::expected<Trace, std::string> read_trace(const std::string& path, const TraceLimits& limits) {
  std::ifstream file(path, std::ios::binary);
  if (!file) {
    return tl::make_unexpected(path + ": cannot be opened (" +
                               std::generic_category().message(errno) +
                               "); check the path and its permissions");
  }
  return read_trace(file, path, limits);
}

}  // namespace mc::ctl
