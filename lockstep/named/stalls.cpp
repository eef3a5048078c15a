#include "lockstep/named/stalls.h"

#include <algorithm>

#include "lockstep/base/number_list.h"
#include "lockstep/base/str.h"

namespace lockstep::named {

std::string describe(const std::vector<Incomplete>& incomplete) {
  constexpr std::size_t MOST = 10;
  std::string text;
  for (std::size_t i = 0; i < incomplete.size() && i < MOST; ++i) {
    const Incomplete& one = incomplete[i];
    text +=
        str(i == 0 ? "" : "; ", name_of(one.request->kind), " ", in_quotes(one.request->name),
            " was submitted by ", rank_list(one.present), " and is missing from ", rank_list(one.missing));
  }
  if (incomplete.size() > MOST) text += str("; and ", incomplete.size() - MOST, " more");
  return text;
}

Stalls StallWatch::look(const std::vector<Incomplete>& incomplete, Time now, Time running_since) {
  const auto age_of = [&](const Incomplete& one) { return now - std::max(one.since, running_since); };
  Stalls stalls;
  std::vector<Incomplete> late;
  for (const Incomplete& one : incomplete) {
    const auto age = age_of(one);
    if (check_.count() > 0 && age >= check_) late.push_back(one);
    if (shutdown_.count() > 0 && age >= shutdown_) stalls.is_over = true;
  }
  if (late.empty() || now - warned_ < check_) return stalls;
  warned_ = now;
  stalls.warning =
      str("stalled for ", std::chrono::duration_cast<std::chrono::seconds>(age_of(late.front())).count(),
          " s: ", describe(late),
          ". Every rank must submit the same names; a rank that has no more data calls join()");
  return stalls;
}

std::optional<std::chrono::milliseconds> StallWatch::patience() const {
  constexpr std::chrono::milliseconds LONGEST{1000};
  if (check_.count() == 0 && shutdown_.count() == 0) return std::nullopt;
  const auto shortest = check_.count() == 0 ? shutdown_ : check_;
  return std::clamp(shortest / 10, std::chrono::milliseconds(10), LONGEST);
}

}  // namespace lockstep::named
