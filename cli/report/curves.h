// The part of a report that draws the values of metrics files, and their tables. Pure.
#pragma once

#include <string>
#include <vector>

#include "cli/report/metrics_input.h"

namespace lockstep::cli {

// One chart: all keys that differ only by a prefix such as "train_" or "test_", of all files with the same x.
struct CurveChart {
  std::string key;  // without the prefix
  std::string x;
  struct Series {
    std::string name;
    const Curve* curve = nullptr;
  };
  std::vector<Series> series;
};

// "train_loss" and "test/loss" are "loss".
std::string chart_key(const std::string& key);
// Losses first, the others in the order of the keys.
std::vector<CurveChart> charts_of(const std::vector<MetricsTable>& tables);

// Returns at most `limit` points: the lowest and the highest of each stretch, in order.
std::vector<CurvePoint> thinned(const std::vector<CurvePoint>& points, std::size_t limit);

std::string summary_html(const std::vector<MetricsTable>& tables);
std::string curves_html(const std::vector<MetricsTable>& tables);

}  // namespace lockstep::cli
