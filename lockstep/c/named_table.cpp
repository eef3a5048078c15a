#include "lockstep/c/named_table.h"

namespace lockstep::c {

HandleTable<std::shared_ptr<named::Operation>>& named_operations() {
  static auto& table = *new HandleTable<std::shared_ptr<named::Operation>>(HandleKind::NAMED);
  return table;
}

}  // namespace lockstep::c
