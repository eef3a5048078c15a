// The messages of TcpStore and TcpStoreServer after the handshake (store/handshake.h): requests and replies,
// one reply per request, in order. Only these two use them. Pure.
//
//   frame     payload size 4 | payload
//   request   op 1 | number 8 | count of texts 4 | (size 4 | bytes)*
//   reply     status 1 | number 8 | count of texts 4 | (size 4 | bytes)*          all numbers little-endian
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/base/visibility.h"
#include "lockstep/store/store.h"

namespace LOCKSTEP_PUBLIC lockstep {

enum class StoreOp : std::uint8_t {
  SET = 1,      // key, value
  FIND,         // key                                              reply: MISSING, or the value
  FIRST_OF,     // keys; number: milliseconds to wait, -1 forever    reply: MISSING, or number: index, and the
                // value
  ADD,          // key; number: the amount                           reply: number: the sum
  COMPARE_SET,  // key, expected, desired                            reply: the value
  DELETE_KEY,   // key                                               reply: number: 1 if it existed
  NUM_KEYS,     //                                                   reply: number
};

enum class StoreStatus : std::uint8_t { OK = 1, MISSING, FAILED };  // FAILED: the text has the reason

struct StoreRequest {
  StoreOp op = StoreOp::SET;
  std::int64_t number = 0;
  std::vector<std::string> texts;
};

struct StoreReply {
  StoreStatus status = StoreStatus::OK;
  std::int64_t number = 0;
  std::vector<std::string> texts;  // at most one
};

std::string encode(const StoreRequest& request);
std::string encode(const StoreReply& reply);

// Takes one whole frame off the front of `buffer`; nullopt if it is not complete. Throws StoreError for a
// malformed message: a frame or text that is too large, texts that do not fill the frame, an unknown op, a
// wrong number of texts.
std::optional<StoreRequest> take_request(std::string& buffer);
std::optional<StoreReply> take_reply(std::string& buffer);

inline constexpr std::size_t MAX_STORE_FRAME = 3 * MAX_STORE_TEXT + 4096;
inline constexpr std::size_t MAX_STORE_KEYS = 4096;  // in one FIRST_OF

}  // namespace lockstep
