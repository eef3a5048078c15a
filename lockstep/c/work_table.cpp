#include "lockstep/c/work_table.h"

namespace lockstep::c {

HandleTable<Work>& works() {
  static auto& table = *new HandleTable<Work>(HandleKind::WORK);
  return table;
}

}  // namespace lockstep::c
