// The operations of a store on a plain map. MemoryStore guards the map with a mutex, FileStore with a file
// lock. The TCP store's server has only one thread.
#pragma once

#include <map>
#include <string>

#include "lockstep/base/visibility.h"

namespace LOCKSTEP_PUBLIC lockstep {

using Table = std::map<std::string, std::string>;

// Throws StoreError if the key or the value is larger than MAX_STORE_TEXT.
void check_store_text(const std::string& key, const std::string& value = {});

// Throws StoreError, without a change, if the value is not a number or the sum overflows.
long table_add(Table& table, const std::string& key, long amount);
std::string table_compare_set(Table& table, const std::string& key, const std::string& expected,
                              const std::string& desired);

}  // namespace lockstep
