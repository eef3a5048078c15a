#include "lockstep/train/profiler_averages.h"

#include <algorithm>
#include <array>
#include <limits>
#include <map>
#include <tuple>

#include "lockstep/base/str.h"

namespace lockstep {
namespace {

using Kind = ProfilerEvent::Kind;

constexpr int NONE = -1;

struct Node {
  const ProfilerEvent* event;
  int parent = NONE;
  std::vector<int> children = {};
  std::int64_t memory = 0;  // including that of children
};

bool is_counted(const ProfilerEvent& event) {
  constexpr std::array<std::string_view, 7> LEFT_OUT = {
      "[OutOfMemory]", "profiler::_record_function_enter", "profiler::_record_function_enter_new",
      "aten::is_leaf", "profiler::_record_function_exit",  "aten::output_nr",
      "aten::_version"};
  return event.kind != Kind::DEVICE && event.kind != Kind::MEMORY &&
         std::find(LEFT_OUT.begin(), LEFT_OUT.end(), event.name) == LEFT_OUT.end();
}

bool starts_before(const ProfilerEvent* a, const ProfilerEvent* b) {
  return std::tuple(a->start_ns, -a->end_ns) < std::tuple(b->start_ns, -b->end_ns);
}

// An event is the child of the shortest one of its thread that contains it.
void find_parents(std::vector<Node>& nodes) {
  std::map<std::uint64_t, std::vector<int>> open;  // by thread, outermost first
  for (int i = 0; i < static_cast<int>(nodes.size()); ++i) {
    Node& node = nodes[static_cast<std::size_t>(i)];
    if (node.event->is_async) continue;
    std::vector<int>& stack = open[node.event->thread];
    const auto contains = [&](int outer) {
      const ProfilerEvent& event = *nodes[static_cast<std::size_t>(outer)].event;
      return node.event->start_ns < event.end_ns && node.event->end_ns <= event.end_ns;
    };
    while (!stack.empty() && !contains(stack.back())) stack.pop_back();
    if (!stack.empty()) {
      node.parent = stack.back();
      nodes[static_cast<std::size_t>(node.parent)].children.push_back(i);
    }
    stack.push_back(i);
  }
}

// An event whose only child has its name becomes one with it. Returns which events are left.
std::vector<bool> join_repeated(std::vector<Node>& nodes) {
  std::vector<bool> is_left(nodes.size(), true);
  for (std::size_t i = 0; i < nodes.size(); ++i) {  // parents come before children
    while (nodes[i].children.size() == 1) {
      Node& child = nodes[static_cast<std::size_t>(nodes[i].children[0])];
      if (child.event->name != nodes[i].event->name) break;
      is_left[static_cast<std::size_t>(nodes[i].children[0])] = false;
      nodes[i].children = std::vector<int>(child.children);
      for (const int grandchild : nodes[i].children)
        nodes[static_cast<std::size_t>(grandchild)].parent = static_cast<int>(i);
    }
  }
  return is_left;
}

std::string text_of(const std::vector<std::vector<std::int64_t>>& shapes) {
  std::string text = "[";
  for (const auto& shape : shapes) {
    text += text.size() == 1 ? "[" : ", [";
    for (std::size_t i = 0; i < shape.size(); ++i) text += str(i == 0 ? "" : ", ", shape[i]);
    text += "]";
  }
  return text + "]";
}

class Averages {
 public:
  Averages(KeyAverages& rows, bool by_shape) : rows_(rows), by_shape_(by_shape) {}

  // Adds `self` times and memory, in nanoseconds and bytes.
  void add(const ProfilerEvent& event, std::int64_t self_ns, std::int64_t memory, std::int64_t self_memory) {
    const bool is_user_annotation = event.kind == Kind::USER_ANNOTATION;
    const std::string shapes = by_shape_ ? text_of(event.input_shapes) : "";
    const auto [place, is_new] =
        index_.try_emplace(std::tuple(event.name, is_user_annotation, shapes), rows_.size());
    if (is_new) {
      FunctionEventAvg row;
      row.key = event.name;
      row.input_shapes = shapes;
      row.is_async = event.is_async;
      row.is_user_annotation = is_user_annotation;
      rows_.push_back(std::move(row));
    }
    FunctionEventAvg& row = rows_[place->second];
    ++row.count;
    row.cpu_time_total += static_cast<double>(event.end_ns - event.start_ns) / 1e3;
    row.self_cpu_time_total += static_cast<double>(self_ns) / 1e3;
    row.cpu_memory_usage += memory;
    row.self_cpu_memory_usage += self_memory;
  }

 private:
  KeyAverages& rows_;
  const bool by_shape_;
  std::map<std::tuple<std::string, bool, std::string>, std::size_t> index_;
};

// Assigns the memory events to the innermost operation that was open on their thread, and to all around it.
// Returns the events outside of operations.
std::vector<const ProfilerEvent*> give_memory(const ProfilerTrace& trace, std::vector<Node>& nodes) {
  std::map<std::uint64_t, std::vector<int>> of_thread;
  for (int i = 0; i < static_cast<int>(nodes.size()); ++i) {
    if (!nodes[static_cast<std::size_t>(i)].event->is_async)
      of_thread[nodes[static_cast<std::size_t>(i)].event->thread].push_back(i);
  }
  const auto node_of = [&](int i) -> Node& { return nodes[static_cast<std::size_t>(i)]; };
  std::vector<const ProfilerEvent*> in_none;
  for (const ProfilerEvent& event : trace.events) {
    if (event.kind != Kind::MEMORY) continue;
    const std::vector<int>& candidates = of_thread[event.thread];
    // The last operation that had started by then, or one of those around it.
    const auto behind =
        std::upper_bound(candidates.begin(), candidates.end(), event.start_ns,
                         [&](std::int64_t at, int i) { return at < node_of(i).event->start_ns; });
    int place = behind == candidates.begin() ? NONE : *(behind - 1);
    while (place != NONE && node_of(place).event->end_ns < event.start_ns) place = node_of(place).parent;
    if (place == NONE) in_none.push_back(&event);
    for (; place != NONE; place = node_of(place).parent) node_of(place).memory += event.bytes;
  }
  std::stable_sort(in_none.begin(), in_none.end(), starts_before);
  return in_none;
}

void add_calls(const ProfilerTrace& trace, Averages& averages) {
  for (const GroupTrace& group : trace.groups) {
    for (const TraceRecord& record : group.records) {
      ProfilerEvent event;
      event.name = str("lockstep:", name_of(record.call.verb));
      event.start_ns = record.start_ns;
      event.end_ns = record.state == CallState::POSTED ? trace.end_ns - trace.steady_to_unix : record.end_ns;
      event.is_async = true;
      averages.add(event, 0, 0, 0);
    }
  }
}

}  // namespace

KeyAverages key_averages(const ProfilerTrace& trace, bool group_by_input_shape) {
  std::vector<const ProfilerEvent*> order;
  for (const ProfilerEvent& event : trace.events) {
    if (is_counted(event)) order.push_back(&event);
  }
  std::stable_sort(order.begin(), order.end(), starts_before);
  std::vector<Node> nodes;
  nodes.reserve(order.size());
  for (const ProfilerEvent* event : order) nodes.push_back({event});
  find_parents(nodes);
  const std::vector<const ProfilerEvent*> in_none = give_memory(trace, nodes);
  const std::vector<bool> is_left = join_repeated(nodes);

  KeyAverages rows(trace.profile_memory);
  Averages averages(rows, group_by_input_shape);
  auto outside = in_none.begin();
  const auto add_memory = [&](std::int64_t before) {
    for (; outside != in_none.end() && (*outside)->start_ns < before; ++outside)
      averages.add(**outside, 0, (*outside)->bytes, (*outside)->bytes);
  };
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    if (!is_left[i]) continue;
    const ProfilerEvent& event = *nodes[i].event;
    add_memory(event.start_ns);
    std::int64_t self_ns = event.is_async ? 0 : event.end_ns - event.start_ns;
    std::int64_t self_memory = nodes[i].memory;
    for (const int child : nodes[i].children) {
      const Node& inner = nodes[static_cast<std::size_t>(child)];
      self_ns -= inner.event->end_ns - inner.event->start_ns;
      self_memory -= inner.memory;
    }
    averages.add(event, self_ns, nodes[i].memory, self_memory);
  }
  add_memory(std::numeric_limits<std::int64_t>::max());
  add_calls(trace, averages);
  return rows;
}

}  // namespace lockstep
