#include "lockstep/comm/backends/layout_version.h"

#include "lockstep/base/dtype.h"
#include "lockstep/base/str.h"
#include "lockstep/base/text_hash.h"
#include "lockstep/comm/backends/messages/wire.h"
#include "lockstep/comm/backends/segment/layout.h"
#include "lockstep/comm/trace/trace_layout.h"

namespace lockstep {
namespace {

// Raise it with a change that no size below shows: a new order of two fields, or a new meaning of a value.
constexpr int REVISION = 2;

}  // namespace

std::string layout_version() {
  const std::string sizes =
      str(sizeof(shared::Header), ' ', sizeof(shared::RankLine), ' ', sizeof(shared::PostLine), ' ',
          sizeof(Call), ' ', shared::SLOTS, ' ', shared::LETTERS, ' ', sizeof(messages::Header), ' ',
          messages::EAGER_LIMIT, ' ', messages::CHUNK_BYTES, ' ', trace::MAGIC, ' ', trace::RECORDS, ' ',
          sizeof(trace::Record), ' ', VERB_COUNT, ' ', DTYPE_COUNT, ' ', REDUCE_OP_COUNT, ' ', PURPOSE_COUNT);
  return str(REVISION, '/', text_hash(sizes));
}

}  // namespace lockstep
