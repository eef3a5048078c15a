// The records of TensorBoard's event files, as bytes. train/summary_writer.h writes them.
//
//   std::string file = tf_record(file_version_event(now));
//   file += tf_record(scalar_event("train/loss", 0.25F, 100, now));
//
//   a record   length of the data, 8 bytes, little-endian
//              masked CRC-32C of these 8 bytes, 4 bytes
//              data: an Event, in the encoding of Protocol Buffers
//              masked CRC-32C of the data, 4 bytes
//
// Source      tensorflow/core/lib/io/record_writer.h (the records), tensorboard/compat/proto/event.proto,
//             summary.proto and tensor.proto (the numbers of the fields) of TensorBoard 2.21.
// Pure        times are seconds since 1970.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace lockstep {

std::string tf_record(std::string_view data);

// Returns how many of the first `limit` bytes are whole records with correct checksums, from the beginning
// on.
std::size_t whole_tf_records(std::string_view bytes, std::size_t limit);

// The first Event of a file.
std::string file_version_event(double wall_time);
std::string scalar_event(std::string_view tag, float value, std::int64_t step, double wall_time);
// For TensorBoard's page of texts, which reads Markdown.
std::string text_event(std::string_view tag, std::string_view text, std::int64_t step, double wall_time);

}  // namespace lockstep
