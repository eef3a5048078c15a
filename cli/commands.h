// The subcommands of `lockstep`. Each gets the arguments after its name and returns the exit code.
#pragma once

#include <string>
#include <vector>

namespace lockstep::cli {

int run_command(const std::vector<std::string>& arguments);
int deepspeed_command(const std::vector<std::string>& arguments);
int horovodrun_command(const std::vector<std::string>& arguments);
int bench_command(const std::vector<std::string>& arguments);
int trace_command(const std::vector<std::string>& arguments);
int ckpt_command(const std::vector<std::string>& arguments);
int report_command(const std::vector<std::string>& arguments);
int plan_command(const std::vector<std::string>& arguments);
int info_command(const std::vector<std::string>& arguments);

}  // namespace lockstep::cli
