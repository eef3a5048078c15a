#include "lockstep/store/tcp_store_protocol.h"

#include <type_traits>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

template <typename Number> void put(std::string& out, Number number) {
  auto bits = static_cast<std::make_unsigned_t<Number>>(number);
  for (std::size_t i = 0; i < sizeof(Number); ++i) {
    out += static_cast<char>(bits & 0xffU);
    bits = static_cast<decltype(bits)>(bits >> 7U >> 1U);
  }
}

// Reads from the front of `in`. The caller has checked that it is long enough.
template <typename Number> Number take_number(std::string_view& in) {
  std::make_unsigned_t<Number> bits = 0;
  for (std::size_t i = sizeof(Number); i-- > 0;) {
    bits = static_cast<decltype(bits)>((bits << 7U << 1U) | static_cast<unsigned char>(in[i]));
  }
  in.remove_prefix(sizeof(Number));
  return static_cast<Number>(bits);
}

[[noreturn]] void refuse_message(const char* what) {
  throw StoreError(std::string("store: the other side sent ") + what + "; do both run the same Lockstep?");
}

struct Payload {
  std::uint8_t kind = 0;
  std::int64_t number = 0;
  std::vector<std::string> texts;
};

std::string encode_payload(std::uint8_t kind, std::int64_t number, const std::vector<std::string>& texts) {
  std::string payload;
  put(payload, kind);
  put(payload, number);
  put(payload, static_cast<std::uint32_t>(texts.size()));
  for (const std::string& text : texts) {
    put(payload, static_cast<std::uint32_t>(text.size()));
    payload += text;
  }
  if (payload.size() > MAX_STORE_FRAME)
    throw StoreError("store: keys and values of one call are larger than 3 MiB together");
  std::string frame;
  put(frame, static_cast<std::uint32_t>(payload.size()));
  return frame + payload;
}

constexpr std::size_t FIXED_BYTES = sizeof(std::uint8_t) + sizeof(std::int64_t) + sizeof(std::uint32_t);

std::optional<Payload> take_payload(std::string& buffer) {
  std::string_view in = buffer;
  if (in.size() < sizeof(std::uint32_t)) return std::nullopt;
  const auto size = take_number<std::uint32_t>(in);
  if (size < FIXED_BYTES || size > MAX_STORE_FRAME) refuse_message("a message of impossible size");
  if (in.size() < size) return std::nullopt;
  in = in.substr(0, size);
  Payload payload;
  payload.kind = take_number<std::uint8_t>(in);
  payload.number = take_number<std::int64_t>(in);
  const auto count = take_number<std::uint32_t>(in);
  if (count > MAX_STORE_KEYS) refuse_message("too many texts");
  for (std::uint32_t i = 0; i < count; ++i) {
    if (in.size() < sizeof(std::uint32_t)) refuse_message("a message that is cut off");
    const auto bytes = take_number<std::uint32_t>(in);
    if (bytes > MAX_STORE_TEXT) refuse_message("a text larger than 1 MiB");
    if (bytes > in.size()) refuse_message("a message that is cut off");
    payload.texts.emplace_back(in.substr(0, bytes));
    in.remove_prefix(bytes);
  }
  if (!in.empty()) refuse_message("a message with extra bytes");
  buffer.erase(0, sizeof(std::uint32_t) + size);
  return payload;
}

bool fits(StoreOp op, std::size_t texts) {
  switch (op) {
    case StoreOp::SET: return texts == 2;
    case StoreOp::FIND:
    case StoreOp::ADD:
    case StoreOp::DELETE_KEY: return texts == 1;
    case StoreOp::FIRST_OF: return texts >= 1;
    case StoreOp::COMPARE_SET: return texts == 3;
    case StoreOp::NUM_KEYS: return texts == 0;
  }
  return false;
}

}  // namespace

std::string encode(const StoreRequest& request) {
  return encode_payload(static_cast<std::uint8_t>(request.op), request.number, request.texts);
}

std::string encode(const StoreReply& reply) {
  return encode_payload(static_cast<std::uint8_t>(reply.status), reply.number, reply.texts);
}

std::optional<StoreRequest> take_request(std::string& buffer) {
  auto payload = take_payload(buffer);
  if (!payload) return std::nullopt;
  const auto op = static_cast<StoreOp>(payload->kind);
  if (!fits(op, payload->texts.size())) refuse_message("an unknown request");
  return StoreRequest{op, payload->number, std::move(payload->texts)};
}

std::optional<StoreReply> take_reply(std::string& buffer) {
  auto payload = take_payload(buffer);
  if (!payload) return std::nullopt;
  const auto status = static_cast<StoreStatus>(payload->kind);
  const bool known =
      status == StoreStatus::OK || status == StoreStatus::MISSING || status == StoreStatus::FAILED;
  if (!known || payload->texts.size() > 1) refuse_message("an unknown reply");
  return StoreReply{status, payload->number, std::move(payload->texts)};
}

}  // namespace lockstep
