// Values that repeat, written and compared a period at a time. Element by element the same takes much
// longer under ThreadSanitizer, which looks at every load and store of a loop.
//
//   const Repeated<float> values(997, [](std::size_t i) { return 10.0F * i; });
//   values.write(x);
//   EXPECT_EQ(values.different(x), 0U);
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <span>
#include <vector>

namespace lockstep {

template <typename T> class Repeated {
 public:
  // Element i is value(i % period).
  template <typename Value> Repeated(std::size_t period, Value value) : period_(period) {
    for (std::size_t i = 0; i < period; ++i) period_[i] = static_cast<T>(value(i));
  }

  void write(std::span<T> x) const {
    for (std::size_t i = 0; i < x.size(); i += period_.size())
      std::memcpy(&x[i], period_.data(), length(x.size(), i) * sizeof(T));
  }

  // How many elements do not have the bits that they should have.
  std::size_t different(std::span<const T> x) const {
    std::size_t count = 0;
    for (std::size_t i = 0; i < x.size(); i += period_.size()) {
      const std::size_t n = length(x.size(), i);
      if (std::memcmp(&x[i], period_.data(), n * sizeof(T)) == 0) continue;
      for (std::size_t k = 0; k < n; ++k) count += x[i + k] != period_[k] ? 1 : 0;
    }
    return count;
  }

 private:
  std::size_t length(std::size_t count, std::size_t first) const {
    return std::min(period_.size(), count - first);
  }

  std::vector<T> period_;
};

}  // namespace lockstep
