-- Drives @TOP@ with the operands of @FILES@ and writes @DUMP@: @COLUMNS@ of each vector, a line each.
-- Handshake: @HANDSHAKE@.
--
-- Generics, -gNAME=VALUE of the simulation:
--   count    vectors
--   manner   0 back to back; 1 held: one at a time, operands stay; 2 with random stalls; 3 watched: outputs in each
--            of `window` cycles after the operands
--   latency  cycles from operands to result where no signal says that it is there
--   steps    transfers of a sum
--   bound    cycles without a transfer after which the unit is stuck
--   seed     of the stalls; cycles=1 writes cycles.txt: from each vector's operands to its result
library ieee;
use ieee.std_logic_1164.all;
use ieee.numeric_std.all;
use ieee.math_real.all;
@LIBRARIES@
use std.textio.all;

entity emu_testbench is
  generic (
    count   : integer := @COUNT@;
    manner  : integer := 0;
    latency : integer := @LATENCY@;
    steps   : integer := @STEPS@;
    bound   : integer := @BOUND@;
    window  : integer := 64;
    seed    : integer := 1;
    cycles  : integer := 0@GENERICS@
  );
end entity;

architecture bench of emu_testbench is
  constant channels : integer := @CHANNELS@;
  constant has_offer : boolean := @HAS_OFFER@ = 1;
  constant has_result : boolean := @HAS_RESULT@ = 1;
  constant overlaps : boolean := @OVERLAPS@ = 1;
  constant at_once : boolean := @AT_ONCE@ = 1;
  constant has_take : boolean := @HAS_TAKE@ = 1;
  constant may_stay : boolean := @MAY_STAY@ = 1;
  constant first_alone : boolean := @FIRST_ALONE@ = 1;
  constant holds : boolean := @HOLDS@ = 1;
  constant held_manner : integer := 1;
  constant stalls : integer := 2;
  constant watched : integer := 3;
  constant reset_cycles : integer := @RESET_CYCLES@;
  constant drained_cycles : integer := @DRAINED_CYCLES@;
  constant queue_size : integer := @QUEUE@;

  signal emu_clock, emu_take, emu_first, emu_last : std_logic := '0';
  signal emu_reset : std_logic := '1';
  signal emu_offers : std_logic_vector(channels - 1 downto 0) := (others => '0');
  signal emu_accepts : std_logic_vector(channels - 1 downto 0);
  signal emu_result : std_logic;
  signal emu_flags : std_logic_vector(7 downto 0);
@DECLARATIONS@

  type cycle_numbers is array (0 to queue_size - 1) of integer;

  -- The bits of a hexadecimal number, filled with 0 or cut at the left.
  function bits_of(text : string; width : positive) return std_logic_vector is
    variable bits : std_logic_vector(4 * text'length + width - 1 downto 0) := (others => '0');
    variable digit : integer;
  begin
    for i in text'range loop
      case text(i) is
        when '0' to '9' => digit := character'pos(text(i)) - character'pos('0');
        when 'a' to 'f' => digit := character'pos(text(i)) - character'pos('a') + 10;
        when 'A' to 'F' => digit := character'pos(text(i)) - character'pos('A') + 10;
        when others => next;
      end case;
      bits := bits(bits'high - 4 downto 0) & std_logic_vector(to_unsigned(digit, 4));
    end loop;
    return bits(width - 1 downto 0);
  end function;

  -- Hexadecimal digits; x where a bit is neither 0 nor 1, z where all are z.
  function digits_of(word : std_logic_vector) return string is
    constant digits : string(1 to 16) := "0123456789abcdef";
    constant count : positive := (word'length + 3) / 4;
    variable bits : std_logic_vector(4 * count - 1 downto 0) := (others => '0');
    variable text : string(1 to count);
    variable part : std_logic_vector(3 downto 0);
  begin
    bits(word'length - 1 downto 0) := to_x01z(word);
    for i in text'range loop
      part := bits(4 * (count - i) + 3 downto 4 * (count - i));
      if part = "ZZZZ" then
        text(i) := 'z';
      elsif is_x(part) then
        text(i) := 'x';
      else
        text(i) := digits(to_integer(unsigned(part)) + 1);
      end if;
    end loop;
    return text;
  end function;

  impure function next_code(file source : text; width : positive) return std_logic_vector is
    variable row : line;
    variable code : std_logic_vector(width - 1 downto 0);
  begin
    if endfile(source) then
      return code;
    end if;
    readline(source, row);
    code := bits_of(row.all, width);
    deallocate(row);
    return code;
  end function;
begin
  emu_accepts <= @ACCEPTS@;
  emu_result <= @RESULT@;
@FLAGS@
  unit : entity work.@TOP@ @PARAMETERS@port map (
@CONNECTIONS@
  );

  process
@FILE_DECLARATIONS@
    file dump : text;
    file times : text;
    variable row : line;
    variable pending : std_logic_vector(channels - 1 downto 0) := (others => '0');
    variable sent, received, step, gap, idle, cycle, extra, extra_after : integer := 0;
    variable sent_at : cycle_numbers;
    variable loaded, moved, stuck : boolean := false;
    variable first_seed : positive := seed + 1;
    variable second_seed : positive := 4711;

    impure function noise(width : positive) return std_logic_vector is
      variable bits : std_logic_vector(width - 1 downto 0);
      variable drawn : real;
    begin
      for i in bits'range loop
        uniform(first_seed, second_seed, drawn);
        bits(i) := '1' when drawn < 0.5 else '0';
      end loop;
      return bits;
    end function;

    procedure load is  -- the next operands; a sum's addend comes with its first term
    begin
@LOADS@
      pending := (others => '1');
      emu_first <= '1' when step = 0 else '0';
      emu_last <= '1' when step = steps - 1 else '0';
      loaded := true;
    end procedure;

    procedure write_line is
    begin
@WRITES@
      writeline(dump, row);
      if cycles /= 0 then
        write(row, cycle - sent_at(received mod queue_size));
        writeline(times, row);
      end if;
    end procedure;

    procedure sample is
      variable is_there : boolean;
    begin
      if manner = watched then
        if received < sent then
          write_line;
          moved := true;
          if cycle - sent_at(received mod queue_size) = window then
            received := received + 1;
          end if;
        end if;
        return;
      end if;
      if has_result then
        is_there := to_x01(emu_result) = '1' and emu_take = '1';
      else
        is_there := received < sent and cycle = sent_at(received mod queue_size) + latency;
      end if;
      if is_there and received < sent then
        write_line;
        received := received + 1;
        moved := true;
      elsif is_there and not may_stay then
        if extra = 0 then
          extra_after := received - 1;
        end if;
        extra := extra + 1;
      end if;
    end procedure;

    procedure transfer is
    begin
      for i in pending'range loop
        if pending(i) = '1' and to_x01(emu_accepts(i)) = '1' then
          pending(i) := '0';
          moved := true;
        end if;
      end loop;
      if unsigned(pending) = 0 then
        loaded := false;
        step := step + 1;
        if step = steps then
          step := 0;
          sent_at(sent mod queue_size) := cycle;
          sent := sent + 1;
        end if;
        if manner = stalls and (step = 0 or (has_offer and not first_alone)) then
          gap := to_integer(unsigned(noise(2)));
        end if;
      end if;
    end procedure;

    procedure tick is
    begin
      wait for 1 ns;
      emu_clock <= '1';
      wait for 5 ns;
      emu_clock <= '0';
      cycle := cycle + 1;
    end procedure;
  begin
@OPENS@
    file_open(dump, "@DUMP@", write_mode);
    if cycles /= 0 then
      file_open(times, "cycles.txt", write_mode);
    end if;
@ZEROS@
    for i in 1 to reset_cycles loop
      wait for 4 ns;
      tick;
    end loop;
    emu_reset <= '0';
    while received < count and not stuck loop
      moved := false;
      if not loaded and gap > 0 then
        gap := gap - 1;
        moved := true;
      elsif not loaded and sent < count and sent - received < queue_size
        and (received = sent or (overlaps and manner /= held_manner and manner /= watched)) then
        load;
      end if;
      if not loaded then
        emu_first <= '0';
        emu_last <= '0';
      end if;
      if manner = stalls and not (holds and sent /= received) then  -- what is not offered may be anything
@SCRAMBLES@
      end if;
      emu_offers <= pending;
      if first_alone and step /= 0 then
        emu_offers <= (others => '0');
      end if;
      emu_take <= '1';
      if has_take and manner = stalls and noise(1) = "0" then
        emu_take <= '0';
      end if;
      wait for 4 ns;
      if not at_once then
        sample;
      end if;
      if loaded then
        transfer;
      end if;
      if at_once then
        sample;
      end if;
      idle := 0 when moved else idle + 1;
      stuck := idle > bound;
      tick;
    end loop;
    if stuck then
      if loaded then
        write(row, "emu: stuck at vector " & to_string(sent) & " for " & to_string(bound)
          & " cycles, waiting for its operands to be taken");
      else
        write(row, "emu: stuck at vector " & to_string(received) & " for " & to_string(bound)
          & " cycles, waiting for its result");
      end if;
      write(row, string'(" (") & @STATE@ & ")");
      writeline(output, row);
    end if;
    emu_offers <= (others => '0');
    emu_first <= '0';
    emu_last <= '0';
    emu_take <= '1';
    if has_result and not stuck then
      for i in 1 to drained_cycles loop
        wait for 4 ns;
        sample;
        tick;
      end loop;
    end if;
    write(row, "emu: " & to_string(received) & " of " & to_string(count) & " results, " & to_string(extra)
      & " too many after vector " & to_string(extra_after));
    writeline(output, row);
    file_close(dump);
    if cycles /= 0 then
      file_close(times);
    end if;
    std.env.finish;
    wait;
  end process;
end architecture;
