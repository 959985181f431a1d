/** @file
  Finds cmocka's header, or fails to compile: EDK2 builds no library without a source file.

  SPDX-License-Identifier: BSD-2-Clause-Patent
**/

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
