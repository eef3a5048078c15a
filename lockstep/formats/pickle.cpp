#include "lockstep/formats/pickle.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <unordered_map>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"

namespace lockstep {
namespace {

constexpr std::size_t IMPORT_NAME_SHOWN = 100;
constexpr std::size_t LONGEST_NUMBER = 128;   // in bytes
constexpr std::uint32_t MARKER = UINT32_MAX;  // on the stack

// The opcodes that are known; all others are refused. Their letters are those of Python's pickletools.
enum class Opcode : unsigned char {
  MARK = '(',
  STOP = '.',
  NONE = 'N',
  NEWTRUE = 0x88,
  NEWFALSE = 0x89,
  BININT = 'J',
  BININT1 = 'K',
  BININT2 = 'M',
  LONG1 = 0x8a,
  BINFLOAT = 'G',
  BINUNICODE = 'X',
  SHORT_BINUNICODE = 0x8c,
  EMPTY_TUPLE = ')',
  TUPLE1 = 0x85,
  TUPLE2 = 0x86,
  TUPLE3 = 0x87,
  TUPLE = 't',
  EMPTY_LIST = ']',
  APPEND = 'a',
  APPENDS = 'e',
  EMPTY_DICT = '}',
  SETITEM = 's',
  SETITEMS = 'u',
  BINGET = 'h',
  LONG_BINGET = 'j',
  BINPUT = 'q',
  LONG_BINPUT = 'r',
  MEMOIZE = 0x94,
  GLOBAL = 'c',
  STACK_GLOBAL = 0x93,
  REDUCE = 'R',
  NEWOBJ = 0x81,
  BUILD = 'b',
  BINPERSID = 'Q',
  PROTO = 0x80,
  FRAME = 0x95,
};

class Parser {
 public:
  Parser(std::span<const std::byte> bytes, std::span<const std::string_view> known)
      : bytes_(bytes), known_(known) {}

  Pickle parse() {
    while (step(static_cast<Opcode>(take(1)[0]))) continue;
    pickle_.root = pop();
    if (!stack_.empty()) refuse("values are left when it stops");
    return std::move(pickle_);
  }

 private:
  [[noreturn]] void refuse(const std::string& defect) const {
    throw FormatError(str("its pickle is broken at byte ", position_, ": ", defect));
  }

  std::string_view take(std::uint64_t count) {
    if (count > bytes_.size() - position_) refuse("it is cut");
    const auto* const first = reinterpret_cast<const char*>(bytes_.data() + position_);
    position_ += count;
    return {first, static_cast<std::size_t>(count)};
  }
  std::uint64_t little_endian(unsigned count) {
    std::uint64_t number = 0;
    unsigned shift = 0;
    for (const char byte : take(count)) {
      number |= std::uint64_t{static_cast<unsigned char>(byte)} << shift;
      shift += 8;
    }
    return number;
  }
  std::string line() {
    const std::string_view rest = take(bytes_.size() - position_);
    const std::size_t end = rest.find('\n');
    position_ -= rest.size();
    if (end == std::string_view::npos) refuse("it is cut");
    const std::string text(take(end));
    take(1);
    return text;
  }

  PickleNode& node(std::uint32_t id) { return pickle_.nodes[id]; }
  bool is(std::uint32_t id, PickleKind kind) const { return pickle_.nodes[id].kind == kind; }

  void push(PickleNode made) {
    stack_.push_back(static_cast<std::uint32_t>(pickle_.nodes.size()));
    pickle_.nodes.push_back(std::move(made));
  }
  void push_number(std::int64_t value, PickleKind kind = PickleKind::INT) {
    PickleNode made;
    made.kind = kind;
    made.integer = value;
    push(std::move(made));
  }
  void push_text(std::string text, PickleKind kind = PickleKind::TEXT) {
    PickleNode made;
    made.kind = kind;
    made.text = std::move(text);
    push(std::move(made));
  }
  void push_items(PickleKind kind, std::vector<std::uint32_t> items = {}) {
    PickleNode made;
    made.kind = kind;
    made.items = std::move(items);
    push(std::move(made));
  }

  std::uint32_t top() const {
    if (stack_.empty() || stack_.back() == MARKER) refuse("its stack is empty");
    return stack_.back();
  }
  std::uint32_t pop() {
    const std::uint32_t id = top();
    stack_.pop_back();
    return id;
  }
  std::vector<std::uint32_t> pop_some(std::size_t count) {
    std::vector<std::uint32_t> items(count);
    for (std::size_t i = count; i-- > 0;) items[i] = pop();
    return items;
  }
  std::vector<std::uint32_t> pop_to_mark() {
    const auto mark = std::find(stack_.rbegin(), stack_.rend(), MARKER);
    if (mark == stack_.rend()) refuse("a mark is missing");
    std::vector<std::uint32_t> items(mark.base(), stack_.end());
    stack_.erase(mark.base() - 1, stack_.end());
    return items;
  }

  void add_to_top(PickleKind kind, const std::vector<std::uint32_t>& items) {
    if (!is(top(), kind)) refuse("items are added to an object that cannot hold any");
    if (kind == PickleKind::DICT && items.size() % 2 != 0) refuse("a key has no value");
    auto& all = node(top()).items;
    all.insert(all.end(), items.begin(), items.end());
  }

  void get(std::uint64_t number) {
    const auto found = memo_.find(static_cast<std::uint32_t>(number));
    if (found == memo_.end()) refuse(str("it refers to value ", number, ", which it has not made"));
    stack_.push_back(found->second);
  }
  void put(std::uint64_t number) { memo_[static_cast<std::uint32_t>(number)] = top(); }

  void import(const std::string& module, const std::string& name) {
    std::string full = module + "." + name;
    if (std::find(known_.begin(), known_.end(), full) == known_.end())
      throw FormatError(str("it wants to use ", printable(full, IMPORT_NAME_SHOWN),
                            ", which is not part of a tensor; only tensors, numbers and texts are read"));
    push_text(std::move(full), PickleKind::GLOBAL);
  }
  void stack_import() {
    const std::uint32_t name = pop();
    const std::uint32_t module = pop();
    if (!is(name, PickleKind::TEXT) || !is(module, PickleKind::TEXT))
      refuse("a name to import is not a text");
    import(std::string(node(module).text), std::string(node(name).text));
  }

  // An OrderedDict becomes a dict; any other call stays a record.
  void reduce(PickleKind kind) {
    std::vector<std::uint32_t> call = pop_some(2);
    if (!is(call[0], PickleKind::GLOBAL)) refuse("it calls an object that has no name");
    if (!is(call[1], PickleKind::TUPLE)) refuse("the arguments of a call are not a tuple");
    if (node(call[0]).text == "collections.OrderedDict") {
      if (!node(call[1]).items.empty()) refuse("an OrderedDict is made of something");
      return push_items(PickleKind::DICT);
    }
    push_items(kind, std::move(call));
  }
  // A dict's state (the versions of a model's modules) does not concern its tensors.
  void build() {
    const std::uint32_t state = pop();
    const std::uint32_t target = top();
    if (is(target, PickleKind::DICT)) return;
    if (!is(target, PickleKind::OBJECT) && !is(target, PickleKind::CALL))
      refuse("a state is set on an object that has none");
    if (node(target).state != PickleNode::NO_STATE) refuse("a state is set twice");
    node(target).state = state;
  }

  void big_number() {
    std::string_view text = take(little_endian(1));
    if (text.size() > LONGEST_NUMBER) refuse("a number is too long");
    // A last byte that only repeats the sign can be dropped.
    const auto sign = [&](std::size_t from_end) {
      return (static_cast<unsigned char>(text[text.size() - from_end]) & 0x80U) != 0;
    };
    while (text.size() > 1 && text.back() == (sign(2) ? '\xff' : '\0')) text.remove_suffix(1);
    if (text.size() > sizeof(std::int64_t)) return push_text(std::string(text), PickleKind::BIG_INT);
    std::uint64_t value = 0;
    for (std::size_t i = text.size(); i-- > 0;) value = value << 8U | static_cast<unsigned char>(text[i]);
    if (!text.empty() && text.size() < sizeof value && (static_cast<unsigned char>(text.back()) & 0x80U) != 0)
      value |= ~std::uint64_t{0} << (8 * text.size());
    push_number(static_cast<std::int64_t>(value));
  }
  void real_number() {
    std::uint64_t bits = 0;
    for (const char byte : take(sizeof bits)) bits = bits << 8U | static_cast<unsigned char>(byte);
    PickleNode made;
    made.kind = PickleKind::FLOAT;
    made.real = std::bit_cast<double>(bits);
    push(std::move(made));
  }

  bool step(Opcode opcode);
  bool step_value(Opcode opcode);
  void step_object(Opcode opcode);

  std::span<const std::byte> bytes_;
  std::span<const std::string_view> known_;
  std::uint64_t position_ = 0;
  Pickle pickle_;
  std::vector<std::uint32_t> stack_;
  std::unordered_map<std::uint32_t, std::uint32_t> memo_;
};

// Handles containers, the memo and the end. Returns false at the end.
bool Parser::step(Opcode opcode) {
  switch (opcode) {
    case Opcode::STOP: return false;
    case Opcode::MARK: stack_.push_back(MARKER); return true;
    case Opcode::EMPTY_TUPLE: push_items(PickleKind::TUPLE); return true;
    case Opcode::TUPLE1: push_items(PickleKind::TUPLE, pop_some(1)); return true;
    case Opcode::TUPLE2: push_items(PickleKind::TUPLE, pop_some(2)); return true;
    case Opcode::TUPLE3: push_items(PickleKind::TUPLE, pop_some(3)); return true;
    case Opcode::TUPLE: push_items(PickleKind::TUPLE, pop_to_mark()); return true;
    case Opcode::EMPTY_LIST: push_items(PickleKind::LIST); return true;
    case Opcode::EMPTY_DICT: push_items(PickleKind::DICT); return true;
    case Opcode::APPEND: add_to_top(PickleKind::LIST, pop_some(1)); return true;
    case Opcode::APPENDS: add_to_top(PickleKind::LIST, pop_to_mark()); return true;
    case Opcode::SETITEM: add_to_top(PickleKind::DICT, pop_some(2)); return true;
    case Opcode::SETITEMS: add_to_top(PickleKind::DICT, pop_to_mark()); return true;
    case Opcode::BINGET: get(little_endian(1)); return true;
    case Opcode::LONG_BINGET: get(little_endian(4)); return true;
    case Opcode::BINPUT: put(little_endian(1)); return true;
    case Opcode::LONG_BINPUT: put(little_endian(4)); return true;
    case Opcode::MEMOIZE: put(memo_.size()); return true;
    case Opcode::PROTO: take(1); return true;
    case Opcode::FRAME: take(8); return true;
    default: break;
  }
  if (!step_value(opcode)) step_object(opcode);
  return true;
}

// Returns false for any other opcode.
bool Parser::step_value(Opcode opcode) {
  switch (opcode) {
    case Opcode::NONE: push({}); return true;
    case Opcode::NEWTRUE: push_number(1, PickleKind::BOOL); return true;
    case Opcode::NEWFALSE: push_number(0, PickleKind::BOOL); return true;
    case Opcode::BININT: push_number(static_cast<std::int32_t>(little_endian(4))); return true;
    case Opcode::BININT1: push_number(static_cast<std::int64_t>(little_endian(1))); return true;
    case Opcode::BININT2: push_number(static_cast<std::int64_t>(little_endian(2))); return true;
    case Opcode::LONG1: big_number(); return true;
    case Opcode::BINFLOAT: real_number(); return true;
    case Opcode::BINUNICODE: push_text(std::string(take(little_endian(4)))); return true;
    case Opcode::SHORT_BINUNICODE: push_text(std::string(take(little_endian(1)))); return true;
    default: return false;
  }
}

void Parser::step_object(Opcode opcode) {
  switch (opcode) {
    case Opcode::GLOBAL: {
      const std::string module = line();
      return import(module, line());
    }
    case Opcode::STACK_GLOBAL: return stack_import();
    case Opcode::REDUCE: return reduce(PickleKind::CALL);
    case Opcode::NEWOBJ: return reduce(PickleKind::OBJECT);
    case Opcode::BUILD: return build();
    case Opcode::BINPERSID: return push_items(PickleKind::PERSISTENT, pop_some(1));
    default:
      refuse(str("opcode ", static_cast<int>(opcode),
                 " is not one that tensors, numbers and texts need; the file holds something else"));
  }
}

}  // namespace

Pickle parse_pickle(std::span<const std::byte> bytes, std::span<const std::string_view> known_globals) {
  if (bytes.size() > PICKLE_MAX_BYTES)
    throw FormatError(
        str("its pickle has ", bytes.size(), " bytes; at most ", PICKLE_MAX_BYTES, " are read"));
  return Parser(bytes, known_globals).parse();
}

}  // namespace lockstep
