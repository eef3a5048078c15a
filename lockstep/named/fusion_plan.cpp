#include "lockstep/named/fusion_plan.h"

#include <algorithm>

#include "lockstep/base/round_up.h"
#include "lockstep/base/str.h"

namespace lockstep::named {
namespace {

constexpr std::size_t UNIT = 64;

bool may_fuse(const Response& response) {
  return response.result == Response::Result::RUN && response.request().kind == Kind::ALLREDUCE &&
         response.request().op != Op::ADASUM;
}

bool fit_together(const Request& a, const Request& b) {
  return a.process_set == b.process_set && a.dtype == b.dtype && a.op == b.op && a.prescale == b.prescale &&
         a.postscale == b.postscale;
}

}  // namespace

std::vector<Batch> fusion_plan(std::vector<Response> ready, std::size_t threshold) {
  std::vector<Batch> plan;
  std::vector<std::size_t> open;  // the last batch of each kind that names may still join
  // Process sets change after what is done in them.
  std::stable_partition(ready.begin(), ready.end(), [](const Response& response) {
    return response.request().kind < Kind::ADD_PROCESS_SET;
  });
  for (Response& response : ready) {
    if (!may_fuse(response)) {
      plan.push_back({.responses = {std::move(response)}, .offsets = {0}});
      continue;
    }
    const std::size_t bytes = round_up(response.request().bytes(), UNIT);
    std::size_t* place = nullptr;
    for (std::size_t& candidate : open) {
      if (fit_together(plan[candidate].request(), response.request())) place = &candidate;
    }
    if (place != nullptr && plan[*place].bytes + bytes <= threshold) {
      Batch& batch = plan[*place];
      batch.offsets.push_back(batch.bytes);
      batch.bytes += bytes;
      batch.responses.push_back(std::move(response));
      continue;
    }
    if (place == nullptr) place = &open.emplace_back();
    *place = plan.size();
    plan.push_back({.responses = {std::move(response)}, .offsets = {0}, .bytes = bytes});
  }
  return plan;
}

std::string to_text(const std::vector<Batch>& plan) {
  std::string text;
  for (std::size_t b = 0; b < plan.size(); ++b) {
    text += str(b, ": ", name_of(plan[b].request().kind));
    for (std::size_t i = 0; i < plan[b].responses.size(); ++i)
      text += str(i == 0 ? " " : ", ", in_quotes(plan[b].responses[i].request().name), " at ",
                  plan[b].offsets[i]);
    text += '\n';
  }
  return text;
}

}  // namespace lockstep::named
