#include "cli/report/spans.h"

#include <algorithm>

namespace lockstep::cli {

Spans merged(Spans spans) {
  std::sort(spans.begin(), spans.end(), [](const Span& a, const Span& b) { return a.start < b.start; });
  Spans out;
  for (const Span& span : spans) {
    if (span.end <= span.start) continue;
    if (!out.empty() && span.start <= out.back().end) {
      out.back().end = std::max(out.back().end, span.end);
    } else {
      out.push_back(span);
    }
  }
  return out;
}

Spans without(const Spans& spans, const Spans& others) {
  Spans out;
  auto other = others.begin();
  for (Span left : spans) {
    while (other != others.end() && other->end <= left.start) ++other;
    for (auto at = other; at != others.end() && at->start < left.end; ++at) {
      if (left.start < at->start) out.push_back({left.start, at->start});
      left.start = std::min(at->end, left.end);
    }
    if (left.start < left.end) out.push_back(left);
  }
  return out;
}

Spans within(const Spans& spans, const Span& window) {
  Spans out;
  auto at = std::partition_point(spans.begin(), spans.end(),
                                 [&](const Span& span) { return span.end <= window.start; });
  for (; at != spans.end() && at->start < window.end; ++at)
    out.push_back({std::max(at->start, window.start), std::min(at->end, window.end)});
  return out;
}

std::int64_t length_within(const Spans& spans, const Span& window) {
  std::int64_t length = 0;
  for (const Span& span : within(spans, window)) length += span.end - span.start;
  return length;
}

}  // namespace lockstep::cli
