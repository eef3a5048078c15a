// The part of a report that draws what metrics files hold, and tables of it. Pure.
#pragma once

#include <string>
#include <vector>

#include "cli/report/metrics_input.h"

namespace lockstep::cli {

// One chart: keys that differ by "train_", "test_" and the like in front, of all files with the same x.
struct CurveChart {
  std::string key;  // without what is in front
  std::string x;
  struct Series {
    std::string name;
    const Curve* curve = nullptr;
  };
  std::vector<Series> series;
};

// "train_loss" and "test/loss" are "loss".
std::string chart_key(const std::string& key);
// Losses first, else in the order in which the keys come.
std::vector<CurveChart> charts_of(const std::vector<MetricsTable>& tables);

// At most `limit` points: of each stretch of them the lowest and the highest, in order.
std::vector<CurvePoint> thinned(const std::vector<CurvePoint>& points, std::size_t limit);

std::string summary_html(const std::vector<MetricsTable>& tables);
std::string curves_html(const std::vector<MetricsTable>& tables);

}  // namespace lockstep::cli
