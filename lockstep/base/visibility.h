// LOCKSTEP_PUBLIC: marks the names that the shared library liblockstep_core.so exports. Everything else of
// the core is compiled with hidden visibility. It can neither be called from outside nor clash with a name of
// the program.
//
//   namespace LOCKSTEP_PUBLIC lockstep {
//   class Store { ... };  // a program may use this class, throw it and catch it
//   }  // namespace lockstep
//
// The mark holds for the body of this one namespace. A namespace written `a::b` takes no mark, so the inner
// one is opened separately. Every installed header of the core has the mark (cmake/LockstepInstall.cmake
// refuses others). So has every header that the library above libtorch includes.
#pragma once

#define LOCKSTEP_PUBLIC [[gnu::visibility("default")]]
