#include "lockstep/train/metrics.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>
#include <nlohmann/json.hpp>
#include <span>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/comm/collectives/all_reduce.h"
#include "lockstep/comm/collectives/objects.h"
#include "lockstep/comm/purpose.h"

namespace lockstep {
namespace {

// The first all_reduce has the same size for all names, so that ranks whose names differ can find out. It
// holds a hash of all names, in pieces h of 16 bits, as h and h*h, and then sum and weight of each entry.
constexpr std::size_t PIECES = 4;
constexpr std::size_t FIRST_ENTRIES = 28;
constexpr std::size_t FIRST_NUMBERS = 2 * (PIECES + FIRST_ENTRIES);

std::uint64_t hash_of(const std::vector<std::string>& titles) {
  std::uint64_t hash = 0xcbf29ce484222325U;  // FNV-1a
  const auto take = [&](unsigned char byte) { hash = (hash ^ byte) * 0x100000001b3U; };
  for (const std::string& title : titles) {
    for (const char c : title) take(static_cast<unsigned char>(c));
    take(0);
  }
  return hash;
}

// Numbers are equal on all ranks exactly if n times the sum of their squares is the square of their sum. All
// these are integers below 2^53.
bool are_alike(std::span<const double> sums, int ranks) {
  for (std::size_t i = 0; i < PIECES; ++i) {
    const auto sum = static_cast<std::uint64_t>(sums[2 * i]);
    const auto squares = static_cast<std::uint64_t>(sums[2 * i + 1]);
    if (static_cast<std::uint64_t>(ranks) * squares != sum * sum) return false;
  }
  return true;
}

// Throws on all ranks alike.
void refuse_names(const std::vector<std::string>& mine, const ProcessGroup& group) {
  const std::vector<nlohmann::json> all = comm::all_gather_object(group, nlohmann::json(mine));
  const auto place = lockstep::str("Metrics::across_ranks on group \"", group.name(), "\", rank ",
                                   group.rank(), " of ", group.size());
  const auto first = all[0].get<std::vector<std::string>>();
  for (std::size_t r = 1; r < all.size(); ++r) {
    const auto theirs = all[r].get<std::vector<std::string>>();
    std::vector<std::string> differing;
    std::set_symmetric_difference(first.begin(), first.end(), theirs.begin(), theirs.end(),
                                  std::back_inserter(differing));
    if (differing.empty()) continue;
    const bool has = std::find(theirs.begin(), theirs.end(), differing[0]) != theirs.end();
    throw Mismatch(lockstep::str(place, ": rank ", has ? r : 0, " has the ", printable(differing[0]),
                                 ", rank ", has ? 0 : r,
                                 " has not; add the same names on all ranks, or give them to the "
                                 "constructor, so that a rank that adds "
                                 "nothing has them, too"));
  }
  throw InternalError(lockstep::str(place, ": the names differ by their hashes and not by themselves"));
}

}  // namespace

Metrics::Metrics(const MetricNames& names) {
  for (const std::string& name : names.means) entry(name, /*is_mean=*/true);
  for (const std::string& name : names.sums) entry(name, /*is_mean=*/false);
}

Metrics::Entry& Metrics::entry(const std::string& name, bool is_mean) {
  if (name.empty()) throw InvalidArgument("Metrics: the name of a metric is empty");
  Entry& found = entries_.try_emplace(name, Entry{.is_mean = is_mean}).first->second;
  if (found.is_mean != is_mean)
    throw InvalidArgument(lockstep::str("Metrics: ", in_quotes(name), " is a ", is_mean ? "sum" : "mean",
                                        " already; give the ", is_mean ? "mean" : "sum", " another name"));
  return found;
}

Metrics& Metrics::add_mean(const std::string& name, double value, double weight) {
  if (!(weight >= 0))
    throw InvalidArgument(
        lockstep::str("Metrics: the weight of ", in_quotes(name), " is ", weight, "; it must be at least 0"));
  Entry& mean = entry(name, /*is_mean=*/true);
  if (weight == 0) return *this;  // the value of an empty batch may be NaN
  mean.sum += value * weight;
  mean.weight += weight;
  return *this;
}

Metrics& Metrics::add_sum(const std::string& name, double value) {
  entry(name, /*is_mean=*/false).sum += value;
  return *this;
}

double Metrics::Entry::value() const {
  if (!is_mean) return sum;
  return weight > 0 ? sum / weight : std::numeric_limits<double>::quiet_NaN();
}

// The names that ranks compare, in order.
std::vector<std::string> Metrics::titles() const {
  std::vector<std::string> titles;
  for (const auto& [name, entry] : entries_)
    titles.push_back(lockstep::str(entry.is_mean ? "mean " : "sum ", in_quotes(name)));
  std::sort(titles.begin(), titles.end());
  return titles;
}

std::map<std::string, double> Metrics::of_this_rank() const {
  std::map<std::string, double> values;
  for (const auto& [name, entry] : entries_) values[name] = entry.value();
  return values;
}

std::map<std::string, double> Metrics::across_ranks(const ProcessGroup& group) const {
  group.require_member("Metrics::across_ranks");
  const Acting acting(Purpose::MEAN);
  std::vector<double> numbers;
  const std::uint64_t hash = hash_of(titles());
  for (std::size_t i = 0; i < PIECES; ++i) {
    const auto piece = static_cast<double>((hash >> (16 * i)) & 0xffffU);
    numbers.insert(numbers.end(), {piece, piece * piece});
  }
  for (const auto& [name, entry] : entries_) numbers.insert(numbers.end(), {entry.sum, entry.weight});
  numbers.resize(std::max(numbers.size(), FIRST_NUMBERS));
  const std::span<double> all(numbers);
  comm::all_reduce(group, all.first(FIRST_NUMBERS), ReduceOp::SUM).wait();
  if (!are_alike(all, group.size())) refuse_names(titles(), group);
  if (numbers.size() > FIRST_NUMBERS)
    comm::all_reduce(group, all.subspan(FIRST_NUMBERS), ReduceOp::SUM).wait();
  std::map<std::string, double> values;
  std::size_t at = 2 * PIECES;
  for (const auto& [name, entry] : entries_) {
    values[name] = Entry{.is_mean = entry.is_mean, .sum = numbers[at], .weight = numbers[at + 1]}.value();
    at += 2;
  }
  return values;
}

void Metrics::reset() {
  for (auto& [name, entry] : entries_) entry = {.is_mean = entry.is_mean};
}

}  // namespace lockstep
