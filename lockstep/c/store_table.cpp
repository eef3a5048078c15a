#include "lockstep/c/store_table.h"

namespace lockstep::c {

HandleTable<std::shared_ptr<Store>>& stores() {
  static auto& table = *new HandleTable<std::shared_ptr<Store>>(HandleKind::STORE);
  return table;
}

}  // namespace lockstep::c
