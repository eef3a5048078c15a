// The grammar is in stand_in_orders.h.
#include "tests/nccl/stand_in_orders.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <stdexcept>

namespace lockstep::nccl::stand_in {
namespace {

using Words = std::vector<std::string_view>;

Words split(std::string_view text, char separator) {
  Words words;
  for (std::size_t end = 0; end != std::string_view::npos; text.remove_prefix(end + 1)) {
    end = text.find(separator);
    words.push_back(text.substr(0, end));
    if (end == std::string_view::npos) break;
  }
  return words;
}

struct NotAnOrder {};

int number(std::string_view word, int smallest) {
  int value = 0;
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
  if (error != std::errc() || end != word.data() + word.size() || value < smallest) throw NotAnOrder();
  return value;
}

std::optional<int> rank_in(const Words& words, std::size_t place) {
  if (words.size() <= place || words[place] == "*") return std::nullopt;
  return number(words[place], 0);
}

void need(const Words& words, std::size_t fewest, std::size_t most) {
  if (words.size() < fewest || words.size() > most) throw NotAnOrder();
}

Verb verb_named(std::string_view word) {
  const auto* const found = std::find(VERB_NAMES.begin(), VERB_NAMES.end(), word);
  if (found == VERB_NAMES.end()) throw NotAnOrder();
  return static_cast<Verb>(found - VERB_NAMES.begin());
}

Order fault_of_a_call(Fault fault, const Words& words) {
  const bool late = fault == Fault::LATE;
  need(words, late ? 5 : 3, late ? 5 : 4);
  return {fault, verb_named(words[1]), number(words[2], 1), rank_in(words, 3),
          late ? number(words[4], 0) : 0};
}

Order fault_of_init(const Words& words) {
  need(words, 2, 3);
  Order order;
  if (words[1] == "fail") order.fault = Fault::INIT_FAIL;
  if (words[1] == "hang") order.fault = Fault::INIT_HANG;
  if (order.fault == Fault::NONE) throw NotAnOrder();
  order.rank = rank_in(words, 2);
  return order;
}

void add_order(Orders& orders, const Words& words) {
  using Named = std::pair<std::string_view, Fault>;
  static constexpr std::array FAULTS{Named("fail", Fault::FAIL), Named("async", Fault::ASYNC),
                                     Named("hang", Fault::HANG), Named("progress", Fault::PROGRESS),
                                     Named("late", Fault::LATE)};
  const auto* const fault =
      std::find_if(FAULTS.begin(), FAULTS.end(), [&](const Named& named) { return named.first == words[0]; });
  if (fault != FAULTS.end()) {
    orders.faults.push_back(fault_of_a_call(fault->second, words));
  } else if (words[0] == "init") {
    orders.faults.push_back(fault_of_init(words));
  } else if (words[0] == "count" || words[0] == "version") {
    need(words, 2, 2);
    if (words[0] == "count") orders.count = number(words[1], 0);
    if (words[0] == "version") orders.version = number(words[1], 0);
  } else if (words[0] == "network") {
    need(words, 1, 1);
    orders.is_network = true;
  } else {
    throw NotAnOrder();
  }
}

bool is_for(const Order& order, int rank) { return !order.rank || *order.rank == rank; }

}  // namespace

Orders parse_orders(std::string_view text) {
  Orders orders;
  if (text.empty()) return orders;
  for (const std::string_view order : split(text, ',')) {
    try {
      add_order(orders, split(order, ':'));
    } catch (const NotAnOrder&) {
      throw std::invalid_argument("NCCL_STAND_IN: \"" + std::string(order) +
                                  "\" is no order; tests/nccl/stand_in_orders.h has the grammar");
    }
  }
  return orders;
}

OrderBook& OrderBook::of_process() {
  static auto* const book = new OrderBook;  // threads of the library may outlive main
  return *book;
}

std::string OrderBook::read() {
  const char* const variable = std::getenv("NCCL_STAND_IN");
  const std::string text = variable == nullptr ? "" : variable;
  const std::lock_guard lock(mutex_);
  if (text == text_) return "";
  try {
    orders_ = parse_orders(text);
  } catch (const std::invalid_argument& error) {
    return error.what();
  }
  text_ = text;
  calls_.clear();
  return "";
}

Orders OrderBook::orders() {
  const std::lock_guard lock(mutex_);
  return orders_;
}

Fault OrderBook::at_init(int rank) {
  const std::lock_guard lock(mutex_);
  for (const Order& order : orders_.faults) {
    if ((order.fault == Fault::INIT_FAIL || order.fault == Fault::INIT_HANG) && is_for(order, rank))
      return order.fault;
  }
  return Fault::NONE;
}

Order OrderBook::next(Verb verb, int rank) {
  const std::lock_guard lock(mutex_);
  const int nth = ++calls_[{verb, rank}];
  for (const Order& order : orders_.faults) {
    const bool of_call = order.fault != Fault::INIT_FAIL && order.fault != Fault::INIT_HANG;
    if (of_call && order.verb == verb && order.nth == nth && is_for(order, rank)) return order;
  }
  return {.verb = verb, .nth = nth};
}

}  // namespace lockstep::nccl::stand_in
