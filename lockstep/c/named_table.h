// The operations by name behind the handles of the C interface.
#pragma once

#include <memory>

#include "lockstep/c/handle_table.h"
#include "lockstep/named/operation.h"

namespace lockstep::c {

HandleTable<std::shared_ptr<named::Operation>>& named_operations();

}  // namespace lockstep::c
