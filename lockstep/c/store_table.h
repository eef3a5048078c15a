// The stores behind the handles of the C interface.
//
//   connect(find_store(handle), rank, size);
#pragma once

#include <memory>

#include "lockstep/c/handle_table.h"
#include "lockstep/store/store.h"

namespace lockstep::c {

HandleTable<std::shared_ptr<Store>>& stores();

inline std::shared_ptr<Store> find_store(lockstep_store handle) { return stores().get(handle); }

}  // namespace lockstep::c
