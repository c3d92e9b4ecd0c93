// SPDX-License-Identifier: Apache-2.0
#include "libmc/http/metric_families.h"

#include <prometheus/text_serializer.h>

#include <limits>

namespace mc::http {

void MetricFamilies::add_sample(MetricLabels labels, double value) {
  prometheus::MetricFamily& family = families_.back();
  prometheus::ClientMetric& metric = family.metric.emplace_back();
  metric.label = std::move(labels);
  (family.type == prometheus::MetricType::Counter ? metric.counter.value : metric.gauge.value) =
      value;
}

void MetricFamilies::histogram(MetricLabels labels, std::span<const double> upper_bounds,
                               std::span<const std::uint64_t> counts, double sum) {
  prometheus::ClientMetric& metric = families_.back().metric.emplace_back();
  metric.label = std::move(labels);
  metric.histogram.sample_sum = sum;
  std::uint64_t seen = 0;
  for (std::size_t i = 0; i < counts.size(); ++i) {
    seen += counts[i];
    const bool last = i >= upper_bounds.size();
    metric.histogram.bucket.push_back(
        {seen, last ? std::numeric_limits<double>::infinity() : upper_bounds[i]});
  }
  metric.histogram.sample_count = seen;
}

std::string MetricFamilies::text() const {
  return prometheus::TextSerializer().Serialize(families_);
}

}  // namespace mc::http
