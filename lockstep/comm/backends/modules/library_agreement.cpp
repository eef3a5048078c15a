#include "lockstep/comm/backends/modules/library_agreement.h"

#include <algorithm>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"

namespace lockstep {

std::vector<std::string> tell_all(Meeting& meeting, const std::string& text, const std::string& failure,
                                  Deadline deadline) {
  const auto messages = meeting.exchange(failure.empty() ? "+" + text : "-" + failure, {}, deadline);
  constexpr std::size_t LONGEST = 1000;  // what to install stands at the end
  std::vector<std::string> texts;
  for (std::size_t r = 0; r < messages.size(); ++r) {
    const std::string& said = messages[r].text;
    if (!said.starts_with('+'))
      throw InvalidArgument(str(meeting.place(), ": ",
                                static_cast<int>(r) == meeting.rank() ? "" : str("rank ", r, ": "),
                                printable(said.substr(said.empty() ? 0 : 1), LONGEST)));
    texts.push_back(said.substr(1));
  }
  return texts;
}

void agree_on_library(Meeting& meeting, std::string_view backend, const std::string& library,
                      const std::string& failure, Deadline deadline) {
  const auto all = tell_all(meeting, library, failure, deadline);
  const auto other = std::find_if(all.begin(), all.end(), [&](const auto& text) { return text != all[0]; });
  if (other != all.end())
    throw InvalidArgument(str(meeting.place(), ": backend \"", backend, "\": rank 0 uses ", printable(all[0]),
                              ", rank ", other - all.begin(), " ", printable(*other),
                              "; install the same library for all ranks"));
}

}  // namespace lockstep
