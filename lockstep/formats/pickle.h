// Parses a Python pickle into inert records: numbers, texts, containers, and imports and calls that Python
// would make. It runs nothing. The caller decides what each record means.
//
//   const std::array<std::string_view, 1> known = {"collections.OrderedDict"};
//   const Pickle pickle = parse_pickle(bytes, known);
//   pickle.nodes[pickle.root].kind;                 // PickleKind::DICT
//
// Nodes refer to each other by their index, so shared values are shared and cycles do no harm here.
//
// Fails       FormatError without a file name: an opcode or a name to import that is not on the list, a stack
//             that does not fit, a cut text. "it wants to use os.system, which is not part of a tensor".
// Memory      at most in proportion to the bytes: each opcode makes at most one node.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/base/visibility.h"

namespace LOCKSTEP_PUBLIC lockstep {

enum class PickleKind : std::uint8_t {
  NONE,
  BOOL,
  INT,      // fits an int64
  BIG_INT,  // any other whole number; `text` holds its bytes, little-endian, two's complement
  FLOAT,
  TEXT,
  TUPLE,
  LIST,
  DICT,        // items: key, value, key, value, ...; also a collections.OrderedDict
  GLOBAL,      // `text` names it: "torch.FloatStorage"
  CALL,        // items: the callable, its tuple of arguments
  OBJECT,      // items: the class, its tuple of arguments
  PERSISTENT,  // items: the name of an object outside of the pickle
};

struct PickleNode {
  static constexpr std::uint32_t NO_STATE = UINT32_MAX;

  PickleKind kind = PickleKind::NONE;
  std::uint32_t state = NO_STATE;  // CALL, OBJECT: the state that Python would set
  std::int64_t integer = 0;        // BOOL, INT
  double real = 0;
  std::string text;
  std::vector<std::uint32_t> items;
};

struct Pickle {
  std::vector<PickleNode> nodes;
  std::uint32_t root = 0;
};

inline constexpr std::uint64_t PICKLE_MAX_BYTES = std::uint64_t{1} << 28;  // larger ones are refused

Pickle parse_pickle(std::span<const std::byte> bytes, std::span<const std::string_view> known_globals);

}  // namespace lockstep
