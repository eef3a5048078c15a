// chosen: the row of a table that an option names.
//
//   constexpr std::array STAGES = std::to_array<Word<ZeroStage>>({{"ddp", ZeroStage::DDP}, ...});
//   chosen("--stage", options.stage, STAGES).value
#pragma once

#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "cli/arguments.h"
#include "lockstep/base/nearest.h"
#include "lockstep/base/str.h"

namespace lockstep::cli {

template <typename Value> struct Word {
  std::string_view name;
  Value value;
};

// Returns the row of a table with that name. UsageError with the names, and the nearest one.
template <typename Row, std::size_t count>
const Row& chosen(std::string_view option, const std::string& word, const std::array<Row, count>& rows) {
  std::vector<std::string> names;
  std::string list;
  for (const Row& row : rows) {
    if (row.name == word) return row;
    names.emplace_back(row.name);
    list += str(list.empty() ? "" : ", ", row.name);
  }
  const std::string close = nearest(word, names);
  throw UsageError(str(option, " is one of ", list, ", not ", in_quotes(word),
                       close.empty() ? "" : str("; did you mean ", close, "?")));
}

}  // namespace lockstep::cli
