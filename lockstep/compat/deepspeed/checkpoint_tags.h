// The tags of DeepSpeed's checkpoints: a folder of a run has one folder for each tag, and a text file
// `latest` that holds the tag of the newest.
//
//   checkpoints/latest                                       global_step1200
//   checkpoints/global_step1200/step-000000001200/...        formats/checkpoint_folder.h
//
//   require_same_tag(group, tag);
//   write_latest("checkpoints", tag, group);
//   const std::optional<std::string> newest = read_latest("checkpoints", group);
//
// Collective  all three. Rank 0 reads and writes, and every rank gets its answer or its error. The file
//             appears whole or not at all, after the checkpoint that it names.
// Throws      InvalidArgument: a tag that is not the name of a folder. Mismatch: ranks give different tags.
//             SystemError: rank 0 cannot read or write the file. FormatError: what it holds is not a tag.
#pragma once

#include <optional>
#include <string>

#include "lockstep/comm/process_group.h"

namespace lockstep::compat::deepspeed {

void require_same_tag(const ProcessGroup& group, const std::string& tag);
void write_latest(const std::string& folder, const std::string& tag, const ProcessGroup& group);
// Nothing if there is no such file.
std::optional<std::string> read_latest(const std::string& folder, const ProcessGroup& group);

}  // namespace lockstep::compat::deepspeed
