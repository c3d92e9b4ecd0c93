// SPDX-License-Identifier: Apache-2.0
//
// Metrics in the text format of Prometheus (https://prometheus.io/docs/instrumenting/exposition_formats/).
// Threads: a value.
// Owns: the families.
// Trusts: names and labels are the caller's; label values may hold any bytes.
#pragma once

#include <prometheus/metric_family.h>

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace mc::http {

using MetricLabels = std::vector<prometheus::ClientMetric::Label>;

// Collects families in the order in which they begin.
class MetricFamilies {
 public:
  // Later samples belong to this family.
  void begin(prometheus::MetricType type, std::string name, std::string help) {
    families_.push_back({std::move(name), std::move(help), type, {}});
  }
  // The family that was begun last has counters or gauges.
  template <typename Number>
  void sample(MetricLabels labels, Number value) {
    add_sample(std::move(labels), static_cast<double>(value));
  }
  // A family with a single sample and without labels.
  template <typename Number>
  void add(prometheus::MetricType type, std::string name, std::string help, Number value) {
    begin(type, std::move(name), std::move(help));
    sample({}, value);
  }
  // The family that was begun last has histograms. upper_bounds: of all buckets but the last one.
  // counts: of each bucket alone.
  void histogram(MetricLabels labels, std::span<const double> upper_bounds,
                 std::span<const std::uint64_t> counts, double sum);
  [[nodiscard]] std::string text() const;

 private:
  void add_sample(MetricLabels labels, double value);

  std::vector<prometheus::MetricFamily> families_;
};

}  // namespace mc::http
