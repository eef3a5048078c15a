// The operations of a store on a plain map; MemoryStore guards it with a mutex, FileStore with a file lock.
#pragma once

#include <map>
#include <string>

namespace lockstep {

using Table = std::map<std::string, std::string>;

long table_add(Table& table, const std::string& key, long amount);
std::string table_compare_set(Table& table, const std::string& key, const std::string& expected,
                              const std::string& desired);

}  // namespace lockstep
